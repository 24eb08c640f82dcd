"""Random programs in large numbers, for machines that have the time."""
