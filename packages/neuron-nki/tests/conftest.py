"""Settings of the tests: few examples, the same ones each time; and where they find what they share."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("nki", max_examples=12, deadline=None, derandomize=True)
settings.load_profile("nki")
