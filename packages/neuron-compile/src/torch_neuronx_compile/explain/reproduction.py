"""A graph as a program of its own."""

import re
from collections.abc import Iterator
from importlib import metadata

import torch
from torch import fx

from torch_neuronx_compile import ops
from torch_neuronx_compile.explain._compat import module_source

_OWN = """from torch_neuronx_compile import ops

ops.define()  # the package's own operators
"""
_PROGRAM = '''"""The {kind} graph {name}, by itself: compiles it and runs it on random inputs."""
# Made with torch {torch} and torch-neuronx-compile {package}.

import torch
from torch import device, inf, nan, tensor

{imports}
{module}

def inputs():
    """Return random inputs of the shapes, strides and dtypes that the graph had."""
    torch.manual_seed(0)
    return [
{inputs}
    ]


def random(dtype, shape, stride, device):
    values = torch.empty_strided(shape, stride, dtype=dtype)
    if dtype.is_floating_point or dtype.is_complex:
        values.copy_(torch.rand(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32))
    else:
        values.copy_(torch.randint(0, 2, shape))
    return values.to(device)


if __name__ == "__main__":
    with torch.no_grad():
        compiled = torch.compile(Repro().to("neuron"), backend="neuron", fullgraph=True)
        for output in compiled(*inputs()):
            print(output if output is None else (output.dtype, tuple(output.shape)))
'''


def reproduction(module: fx.GraphModule, kind: str, name: str) -> str:
    """Return the source of a program that compiles and runs ``module``."""
    source = module_source(module)
    own = re.search(rf"torch\.ops\.{ops.NAMESPACE}\.", source) is not None
    return _PROGRAM.format(
        kind=kind,
        name=name,
        torch=torch.__version__,
        package=metadata.version("torch-neuronx-compile"),
        imports=_OWN if own else "",
        module=source.strip() + "\n",
        inputs="\n".join(f"        {line}" for line in _inputs(module)),
    )


def _inputs(module: fx.GraphModule) -> Iterator[str]:
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            shape, stride = ([int(extent) for extent in extents] for extents in (value.shape, value.stride()))
            yield f'random({value.dtype}, {shape}, {stride}, "{value.device.type}"),  # {node.name}'
        else:
            yield f"{value if value is None else int(value)},  # {node.name}"
