"""Lowers every sample of PyTorch's operator suite, OpInfo, to one program each way and compares what it computes."""
