"""Runs PyTorch's operator suite, OpInfo, on the device and compares it with the CPU."""
