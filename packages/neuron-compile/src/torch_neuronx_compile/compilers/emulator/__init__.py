"""The emulator's compiler: XLA for this machine's CPU, its executable wrapped in the NEFF container."""
