"""How many threads XLA takes: as many as torch has, so that the ranks of a job share the processors."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
import torch
torch.set_num_threads(3)
x = torch.ones(1 << 20, device="neuron")
assert torch.compile(lambda x: x * 2 + 1, backend="neuron")(x).sum().item() == 3 << 20
tasks = Path("/proc/self/task").iterdir()
print(sum((task / "comm").read_text().strip() == "tf_XLAEigen" for task in tasks))
"""


@pytest.mark.parametrize(("asked", "expected"), [({}, "3"), ({"NPROC": "2"}, "2")], ids=["torch's", "XLA's own"])
def test_xla_has_as_many_threads_as_torch(asked: dict[str, str], expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"} | asked
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    ended = subprocess.run(command, check=True, timeout=300, env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.stdout.strip() == expected
