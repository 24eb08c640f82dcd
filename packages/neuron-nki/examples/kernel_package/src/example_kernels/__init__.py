"""An example of a package of kernels."""
