"""Make docs/nki_rules.md: every rule for kernels, from the registry of the verifier.

python tools/nki_rules.py [--check]
"""

import argparse
import sys
from pathlib import Path

from torch_neuronx_nki.verifier.registry import page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "nki_rules.md"


def main() -> int:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the page is not current")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print(f"{PAGE} is not current. Run: python tools/nki_rules.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
