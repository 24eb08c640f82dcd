"""Entries of torch-neuronx-cache in one SQLite file."""
