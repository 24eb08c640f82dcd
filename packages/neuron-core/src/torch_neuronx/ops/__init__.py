"""ATen operators on the target: the table of their statuses, and what was executed."""
