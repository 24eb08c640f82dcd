"""What runs in the processes of a test: the pool of ranks, and the programs that the tests run on them."""
