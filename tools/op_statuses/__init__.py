"""Makes the shipped table of op statuses from what torch-mlir can lower to StableHLO."""
