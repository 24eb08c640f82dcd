"""Which operators AOT Autograd takes apart, and into what."""
