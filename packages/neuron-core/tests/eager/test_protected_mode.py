"""With TORCH_NEURONX_EMULATOR_PROTECT, host code that follows a device pointer is caught where it does so."""

import signal
import subprocess
import sys


def run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"TORCH_NEURONX_EMULATOR_PROTECT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


READ = """
import ctypes, torch
x = torch.ones(4, device="neuron")
assert x.sum().item() == 4
ctypes.string_at(x.data_ptr(), 4)
"""


def test_a_host_read_ends_the_process_with_the_reason(subprocess_environment: dict[str, str]) -> None:
    done = run(READ, subprocess_environment)
    assert done.returncode == -signal.SIGSEGV
    assert "host code touched Neuron device memory" in done.stderr


TRAIN = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to("neuron")
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 8, device="neuron")).square().sum().backward()
    optimizer.step()
print(net[0].weight.sum().item())
"""


def test_kernels_copies_and_training_work(subprocess_environment: dict[str, str]) -> None:
    done = run(TRAIN, subprocess_environment)
    assert done.returncode == 0, done.stderr


ELSEWHERE = """
import ctypes, mmap, torch
torch.ones(4, device="neuron")
page = mmap.mmap(-1, mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0) == 0
ctypes.string_at(address, 1)
"""


SENT = """
import signal, torch
torch.ones(4, device="neuron")
signal.raise_signal(signal.SIGSEGV)
"""


def test_a_signal_that_was_sent_still_ends_the_process(subprocess_environment: dict[str, str]) -> None:
    done = run(SENT, subprocess_environment)
    assert done.returncode == -signal.SIGSEGV
    assert "Neuron" not in done.stderr


def test_another_fault_is_not_claimed(subprocess_environment: dict[str, str]) -> None:
    done = run(ELSEWHERE, subprocess_environment)
    assert done.returncode == -signal.SIGSEGV
    assert "Neuron" not in done.stderr
