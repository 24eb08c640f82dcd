"""The processor that native code is compiled for."""

import platform
import re
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


@cache
def host_features() -> str:
    """Return architecture and instruction-set extensions, sorted: equal on machines that run each other's code.

    Where the system lists no extensions (outside Linux), the processor's name stands in.
    """
    listed = re.search(r"^(?:flags|Features)\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE) if CPUINFO.exists() else None
    features = sorted(listed[1].split()) if listed else [platform.processor()]
    return " ".join([platform.machine(), *features])
