"""The end of a program: its exit status is its own, whatever it did last on the device."""

import subprocess
import sys

LAST_ACTS = {
    "backward": "torch.nn.Linear(3, 3).to('neuron')(torch.ones(1, 3, device='neuron')).sum().backward()",
    "live tensors": "x = torch.ones(3, device='neuron'); y = (x, torch.neuron.Event(), torch.neuron.Stream())",
    "a cycle": "x = torch.ones(3, device='neuron').requires_grad_(); l = [x * 2]; l.append(l)",
}


def test_a_program_ends_well_whatever_it_did_last() -> None:
    codes = [f"import torch\n{act}" for act in [*LAST_ACTS.values(), LAST_ACTS["backward"], LAST_ACTS["backward"]]]
    command = [sys.executable, "-W", "error", "-c"]
    running = [subprocess.Popen([*command, code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for code in codes]
    endings = [(*process.communicate(timeout=120), process.returncode) for process in running]
    assert endings == [(b"", b"", 0)] * len(codes)
