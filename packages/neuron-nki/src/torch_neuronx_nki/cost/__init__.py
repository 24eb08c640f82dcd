"""Estimates how long a kernel takes on a chip, from its records and published figures. Nothing here is measured."""
