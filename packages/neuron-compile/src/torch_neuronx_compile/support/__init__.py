"""What lowers: the table for this installation, limits that depend on arguments, and what was learned from failures."""
