"""Which operators can reach the backend, and how their variants belong together."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torchgen  # type: ignore[import-untyped]
from torchgen.gen import get_grouped_native_functions, parse_native_yaml  # type: ignore[import-untyped]
from torchgen.model import NativeFunction, NativeFunctionsGroup, NativeFunctionsViewGroup  # type: ignore[import-untyped]

from tools.op_statuses._compat import all_operator_names, has_kernel

_HOST_KEYS = (
    "CPU",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "QuantizedCPU",
    "SparseCPU",
    "SparseCsrCPU",
    "MkldnnCPU",
    "NestedTensorCPU",
)
_BACKEND_ONLY = {
    "aten::_copy_from",
    "aten::_copy_from_and_resize",
    "aten::_thnn_fused_gru_cell",
    "aten::_thnn_fused_gru_cell_backward",
    "aten::_thnn_fused_lstm_cell",
    "aten::_thnn_fused_lstm_cell_backward_impl",
    "aten::linear_backward",
    "aten::matmul_backward",
}
"""Operators that PyTorch declares for backends to fill in and gives no kernel of its own."""

_NAMESPACES = {
    "aten",
    "quantized",
    "_quantized",
    "quantization",
    "mkldnn",
    "mkldnn_prepacked",
    "onednn",
    "mkl",
    "sparse",
}
_FOR_TESTS = re.compile(r"_test_\w+|_foobar")


@dataclass(frozen=True)
class Operator:
    """One overload as the dispatcher knows it."""

    name: str
    namespace: str
    packet: str
    overload: str
    base: str = ""
    """The functional form with the same arguments; empty for that form itself."""
    is_view: bool = False
    is_inplace_view: bool = False


def reaches_backend(name: str) -> bool:
    """Whether a call with device tensors ends in a kernel registered for a backend, rather than in other operators."""
    if name in _BACKEND_ONLY:
        return True
    if not any(has_kernel(name, key) for key in _HOST_KEYS):
        return False
    return has_kernel(name, "CPU") or not has_composite(name)


def has_composite(name: str) -> bool:
    """Whether PyTorch takes the operator apart before it reaches a backend."""
    return has_kernel(name, "CompositeImplicitAutograd")


def native_functions() -> tuple[Mapping[str, NativeFunction], Mapping[str, str]]:
    """PyTorch's declarations by name, and the functional form of each variant."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    functions = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml")).native_functions
    bases: dict[str, str] = {}
    for group in get_grouped_native_functions(functions):
        match group:
            case NativeFunctionsGroup():
                members = [group.inplace, group.mutable, group.out]
                bases |= {_name(member): _name(group.functional) for member in members if member is not None}
            case NativeFunctionsViewGroup():
                members = [group.view_copy, group.view_inplace]
                bases |= {_name(member): _name(group.view) for member in members if member is not None}
    return {_name(function): function for function in functions}, bases


def operators(names: Iterable[str] | None = None) -> dict[str, Operator]:
    """Every operator that can reach the backend, by name."""
    declared, bases = native_functions()
    found: dict[str, Operator] = {}
    for name in sorted(all_operator_names() if names is None else names):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace not in _NAMESPACES or _FOR_TESTS.fullmatch(packet) or not reaches_backend(name):
            continue
        base = bases.get(name) or _base_by_name(name, declared)
        # Code generation gives out forms to operators that only other vendors' devices have.
        if overload.endswith("out") and base and not (reaches_backend(base) or has_composite(base)):
            continue
        function = declared.get(name)
        found[name] = Operator(
            name,
            namespace,
            packet,
            overload,
            base=base,
            is_view=function is not None and function.is_view_op and not function.func.name.name.inplace,
            is_inplace_view=function is not None and "inplace_view" in function.tags,
        )
    return found


def _base_by_name(name: str, declared: Mapping[str, NativeFunction]) -> str:
    """The functional form by its name, where torchgen groups none: `add_.Scalar` gives `add.Scalar`."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    functional = packet.rstrip("_") if packet.endswith("_") and not packet.endswith("__") else packet
    plain = re.sub(r"(^|_)out$", "", overload)
    candidate = f"{namespace}::{functional}" + (f".{plain}" if plain else "")
    return candidate if candidate != name and candidate in declared else ""


def _name(function: NativeFunction) -> str:
    return f"{function.namespace}::{function.func.name}"
