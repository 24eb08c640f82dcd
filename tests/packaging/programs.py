"""Programs that are run inside the environments, as a user would write them."""

EAGER = """
import torch
x = torch.arange(6.0, device="neuron").view(2, 3)
assert (x @ x.T).device.type == "neuron"
print((x @ x.T).cpu().tolist())
"""

COMPILE = """
import torch
model = torch.compile(torch.nn.Linear(3, 2).to("neuron"), backend="neuron")
x = torch.ones(4, 3, device="neuron")
torch.testing.assert_close(model(x).cpu(), model._orig_mod(x).cpu())
print("compiled")
"""

DISTRIBUTED = """
import tempfile, torch, torch.distributed as dist
store = dist.FileStore(tempfile.mktemp(), 1)
dist.init_process_group("neuron", store=store, rank=0, world_size=1)
x = torch.ones(4, device="neuron")
dist.all_reduce(x)
print(x.cpu().tolist())
dist.destroy_process_group()
"""

ENTRY_POINTS = """
import json
from importlib.metadata import entry_points
groups = ("torch.backends", "torch_dynamo_backends", "torch_neuronx.plugins")
print(json.dumps({group: sorted(entry.name for entry in entry_points(group=group)) for group in groups}))
"""

FIRST_USE = """
import torch
try:
    torch.zeros(1, device="neuron")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
else:
    print("works")
"""
