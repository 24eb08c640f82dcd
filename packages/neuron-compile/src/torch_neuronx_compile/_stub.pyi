"""What the compile worker loads in place of the handlers: without torch."""

def stub() -> object:
    """Return the capsule of an XLA handler that takes anything and is never run."""
