"""The compiled part of the package."""

def handlers() -> dict[str, object]:
    """Return the capsule of every XLA handler by custom-call target."""
