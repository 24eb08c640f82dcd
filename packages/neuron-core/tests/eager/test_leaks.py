"""Training holds memory flat, on the device and in the process."""

import gc
import os
from pathlib import Path

import torch


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


# With memory protected two system calls surround every kernel: ten thousand steps take minutes.
STEPS = 1_000 if os.environ.get("TORCH_NEURONX_EMULATOR_PROTECT") == "1" else 10_000


def test_thousands_of_steps_hold_memory_flat() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).to("neuron")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    batch = torch.randn(16, 4, device="neuron")

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            torch.nn.functional.dropout(net(batch)).square().mean().backward()
            optimizer.step()

    gc.collect()  # what other tests left in cycles would go while these steps run
    steps(STEPS // 5)  # first use: generators, streams, the optimizer's state, the host allocator's arenas
    before, reserved, resident = torch.neuron.memory_allocated(), torch.neuron.memory_reserved(), resident_bytes()
    steps(STEPS)
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.memory_reserved() == reserved
    assert resident_bytes() - resident < 8 * 2**20  # a leaked tensor a step would be more
