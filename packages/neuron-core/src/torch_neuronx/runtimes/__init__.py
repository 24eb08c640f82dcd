"""Runtimes: what holds device memory and runs NEFFs. The emulator is one of them."""
