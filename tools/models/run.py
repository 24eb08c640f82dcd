"""One model in a process of its own: what happened, as JSON on standard output.

python -m tools.models.run bert
python -m tools.models.run llama --generate
"""

import copy
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tools.models.zoo import ENTRIES, make

TOLERANCE = 2e-3
"""Largest difference from the CPU, relative to the largest magnitude of each tensor."""


@dataclass
class Record:
    """How far a model came. Seconds are of one run on a shared machine: read them as orders of magnitude."""

    name: str
    source: str
    fullgraph: bool = False
    inductor_fullgraph: bool = False
    loads: bool = False
    forward: bool = False
    backward: bool = False
    step: bool = False
    generates: bool | None = None
    graphs: int = 0
    breaks: int = 0
    fallbacks: list[str] = field(default_factory=list)
    largest_difference: float = 0.0
    compile_seconds: float = 0.0
    error: str = ""
    broken_at: str = ""
    """Why the model is not one graph, where Inductor makes one of it."""


class _Counter:
    """Counts what the device reports about fallbacks."""

    def __init__(self) -> None:
        self.ops: set[str] = set()

    def __call__(self, event: Any) -> None:
        from torch_neuronx.events import OpFellBack

        if isinstance(event, OpFellBack):
            self.ops.add(event.op)


def run(name: str, *, fullgraph: bool) -> Record:
    """Load, run forward, backward and one AdamW step, all compiled, and compare each with the CPU's."""
    from torch_neuronx import plugins
    from torch_neuronx.hookspecs import hookimpl
    from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics

    counter = _Counter()

    class Observer:
        @hookimpl
        def torch_neuronx_observe(self, event: Any) -> None:
            counter(event)

    plugins.manager().register(Observer(), f"models {fullgraph}")
    record = Record(name, ENTRIES[name].source, fullgraph=fullgraph)
    try:
        host, inputs = make(name)
        device = copy.deepcopy(host).to("neuron")
        moved = {key: value.to("neuron") for key, value in inputs.items()}
        record.loads = True
        began = time.perf_counter()
        _steps(record, host, inputs, device, moved, fullgraph)
        record.compile_seconds = round(time.perf_counter() - began, 1)
    except Exception as error:  # whatever a model raises is its record
        record.error = f"{type(error).__name__}: {_first_words(error)}"
        traceback.print_exc()
    record.graphs = len(get_dynamo_metrics())
    record.breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    record.fallbacks = sorted(counter.ops)
    return record


def _first_words(error: Exception) -> str:
    """Return the first line of a message; of Dynamo's, the explanation as well."""
    lines = str(error).splitlines() or [""]
    explained = [line.strip() for line in lines if line.strip().startswith("Explanation:")]
    return " ".join([lines[0], *explained[:1]])[:300]


def _steps(
    record: Record,
    host: nn.Module,
    inputs: dict[str, Tensor],
    device: nn.Module,
    moved: dict[str, Tensor],
    fullgraph: bool,
) -> None:
    compiled = torch.compile(device, backend="neuron", fullgraph=fullgraph)
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (host, device)]
    host.train()
    device.train()
    expected, actual = host(**inputs), compiled(**moved)
    _compare(record, "loss", expected, actual)
    record.forward = True
    expected.backward()
    actual.backward()
    for (name, one), (_, other) in zip(host.named_parameters(), device.named_parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), f"the gradient of {name}"
        if one.grad is not None and other.grad is not None:
            _compare(record, f"the gradient of {name}", one.grad, other.grad)
    record.backward = True

    def step(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        return lambda: optimizer.step()

    # AdamW divides by the gradient's magnitude: where that is rounding noise, so is the step. Same gradients for both.
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        if one.grad is not None:
            other.grad = one.grad.to("neuron")
    step(optimizers[0])()
    torch.compile(step(optimizers[1]), backend="neuron", fullgraph=False)()
    for (name, one), (_, other) in zip(host.state_dict().items(), device.state_dict().items(), strict=True):
        _compare(record, f"{name} after the step", one, other)
    record.step = True


def _compare(record: Record, what: str, expected: Tensor, actual: Tensor) -> None:
    one, other = expected.detach().double(), actual.detach().cpu().double()
    assert one.shape == other.shape, f"{what}: {tuple(other.shape)}, not {tuple(one.shape)}"
    if one.numel() == 0:
        return
    difference = float((one - other).abs().max() / one.abs().max().clamp(min=1e-3))
    assert difference <= TOLERANCE, f"{what} differs by {difference:.2g}"
    record.largest_difference = max(record.largest_difference, float(f"{difference:.2g}"))


def generate(name: str) -> str:
    """Generate with a static cache; return an error or nothing. One compilation for the prompt, one for each token."""
    from torch_neuronx.neuron_dynamo_backend import get_dynamo_metrics, reset_dynamo_metrics

    host, inputs = make(name)
    host.eval()
    prompt = inputs["input_ids"][:1, :8]
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static", "pad_token_id": 0}
    expected = host.model.generate(prompt, **options)  # type: ignore[operator, union-attr]
    device = copy.deepcopy(host).to("neuron")
    torch._dynamo.reset()
    reset_dynamo_metrics()
    device.model.forward = torch.compile(device.model.forward, backend="neuron")  # type: ignore[union-attr]
    actual = device.model.generate(prompt.to("neuron"), **options)  # type: ignore[operator, union-attr]
    if not torch.equal(actual.cpu(), expected):
        return f"generated {actual.tolist()}, not {expected.tolist()}"
    graphs = len(get_dynamo_metrics())
    return "" if graphs == 2 else f"compiled {graphs} graphs, not one for the prompt and one for tokens"


def inductor_captures(name: str) -> bool:
    """Return whether Dynamo captures the model as one graph on the CPU, which is what Inductor would compile."""
    torch._dynamo.reset()
    model, inputs = make(name)
    try:
        torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs)
    except torch._dynamo.exc.TorchDynamoException:
        return False
    return True


def main() -> None:
    """Run the model that the arguments name."""
    name = sys.argv[1]
    captures = inductor_captures(name)
    torch._dynamo.reset()
    record = run(name, fullgraph=captures)
    if captures and record.error.startswith("Unsupported"):  # what always breaks here, as grouped_mm, is no failure
        why = record.error
        torch._dynamo.reset()
        record = run(name, fullgraph=False)
        record.broken_at = why
    record.inductor_fullgraph = captures
    if ENTRIES[name].autoregressive and not record.error:
        try:
            record.error = generate(name)
        except Exception as error:  # whatever it raises is its record
            record.error = f"generate: {type(error).__name__}: {str(error).splitlines()[0][:300]}"
            traceback.print_exc()
        record.generates = not record.error
    print(json.dumps(asdict(record)))


if __name__ == "__main__":
    main()
