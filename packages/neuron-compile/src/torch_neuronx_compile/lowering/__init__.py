"""FX to StableHLO: the import into MLIR here, the conversion in the worker."""
