"""Programs that run for long and check that nothing grows or breaks."""
