"""Stores: where the bytes of entries live, found by the scheme of a URL."""
