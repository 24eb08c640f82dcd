"""What instructions compute, on torch tensors over the memory of the kernel; no checks, no state of cores."""
