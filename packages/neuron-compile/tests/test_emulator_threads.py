"""How many threads programs have: as many as torch, so that the ranks of a job share the processors, and no more."""

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


@pytest.mark.parametrize(("asked", "expected"), [({}, "2"), ({"NPROC": "3"}, "3")], ids=["torch's", "XLA's own"])
def test_xla_has_as_many_threads_as_torch_with_the_one_that_calls_it(asked: dict[str, str], expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"} | asked
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    ended = subprocess.run(command, check=True, timeout=300, env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.stdout.strip() == expected


KERNELS = """
from pathlib import Path
import torch
torch.set_num_threads(2)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
    torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(32 * 32 * 32, 10),
).to("neuron")
x = torch.randn(8, 3, 32, 32).to("neuron")
step = torch.compile(model, backend="neuron")
for _ in range(3):
    step(x).sum().backward()
tasks = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(tasks.count("tf_XLAEigen"))
"""


def test_kernels_on_threads_of_xla_start_no_more_threads() -> None:
    """A thread is named as the one that started it."""
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    command = [sys.executable, "-W", "ignore", "-c", KERNELS]
    ended = subprocess.run(command, check=True, timeout=300, env=environment, stdout=subprocess.PIPE, text=True)
    assert ended.stdout.strip() == "1"
