"""Whole models through the compiler: what loads, compiles, trains, and what falls back."""
