"""What is kept of a compiled graph, as bytes and back: nothing in it is code of Python's, and nothing is unpickled."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import fx

from torch_neuronx import plugins
from torch_neuronx.lowerings import Expansion, Lowering
from torch_neuronx_compile._compat import unset_fake_temporarily
from torch_neuronx_compile.options import CompileOptions
from torch_neuronx_compile.saved.envelope import pack, unpack
from torch_neuronx_compile.saved.errors import SavedGraphError
from torch_neuronx_compile.unit import CompilationUnit, Computed, GraphKind, LoweredProgram, Passed, TensorSpec, Viewed

_RECORDS: dict[str, type] = {
    kind.__name__: kind for kind in (CompilationUnit, CompileOptions, Computed, Passed, TensorSpec, Viewed)
}
_LEFT_OUT = ("graph", "constants")
"""Fields of a unit that are kept apart or not at all."""


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A lowered graph and its NEFF, without the FX graph that they were made from."""

    lowered: LoweredProgram
    """Its unit's graph is empty."""
    neff: bytes
    neff_key: tuple[str, ...]
    """What tells this NEFF from others of the program: compiler, its version, target, flags, processor."""
    target: str
    lowerings: Mapping[str, str]
    """Fingerprints of the plugins' lowerings in the program, by operator."""
    options: CompileOptions
    node_count: int
    has_collectives: bool
    eager: bytes | None = None
    """The graph for eager mode where it may fall back, in PyTorch's own serialization."""


def write(record: GraphRecord) -> bytes:
    """Return ``record`` as verified bytes; raises ``TypeError`` for a value that is not plain data."""
    unit = record.lowered.unit
    facts = {
        "key": record.lowered.key,
        "constants": [to_plain(TensorSpec(tuple(c.shape), c.dtype, c.device)) for c in unit.constants],
        "unit": to_plain(unit),
        "neff_key": list(record.neff_key),
        "target": record.target,
        "lowerings": dict(record.lowerings),
        "options": to_plain(record.options),
        "node_count": record.node_count,
        "has_collectives": record.has_collectives,
    }
    sections = {
        "facts": json.dumps(facts).encode(),
        "program": record.lowered.program,
        "neff": record.neff,
        **{f"constant {i}": _bytes(constant) for i, constant in enumerate(unit.constants)},
    }
    return pack(sections if record.eager is None else sections | {"eager": record.eager})


def read(data: bytes) -> GraphRecord:
    """Return what :func:`write` got; raises :class:`SavedGraphError` for damaged bytes."""
    sections = unpack(data)
    facts = json.loads(sections["facts"])
    specs = from_plain(facts["constants"])
    constants = tuple(_tensor(spec, sections[f"constant {i}"]) for i, spec in enumerate(specs))
    unit = replace(from_plain(facts["unit"]), constants=constants)
    return GraphRecord(
        lowered=LoweredProgram(unit, sections["program"], facts["key"], made=False),
        neff=sections["neff"],
        neff_key=tuple(facts["neff_key"]),
        target=facts["target"],
        lowerings=facts["lowerings"],
        options=from_plain(facts["options"]),
        node_count=facts["node_count"],
        has_collectives=facts["has_collectives"],
        eager=sections.get("eager"),
    )


def _bytes(tensor: torch.Tensor) -> bytes:
    with unset_fake_temporarily():
        return bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def _tensor(spec: TensorSpec, content: bytes) -> torch.Tensor:
    """Return a constant on its device. ``torch.load`` would return a fake tensor while PyTorch traces."""
    with unset_fake_temporarily():
        if not content:
            return torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)
        return torch.frombuffer(bytearray(content), dtype=spec.dtype).view(spec.shape).to(spec.device)


def check(record: GraphRecord, target: str) -> None:
    """Raise :class:`SavedGraphError` unless the program means the same here as where it was saved."""
    name = record.lowered.unit.name
    if record.target != target:
        raise SavedGraphError(
            f"The saved graph {name!r} was compiled for {record.target}, and this process uses {target}. Set "
            f"NEURON_PLATFORM_TARGET_OVERRIDE={record.target}, or compile again and save it here."
        )
    manager = plugins.manager()
    registered: dict[str, Lowering | Expansion] = {**manager.lowerings(), **manager.expansions()}
    for op, fingerprint in record.lowerings.items():
        here = registered[op].fingerprint if op in registered else None
        if here != fingerprint:
            what = "no installed plugin has it" if here is None else f"here it is {here!r}"
            raise SavedGraphError(
                f"The saved graph {name!r} calls {op} as it was with the fingerprint {fingerprint!r}; {what}. Compile "
                "it again: delete the file, or the folder TORCHINDUCTOR_CACHE_DIR."
            )


def to_plain(value: Any) -> Any:
    """Return ``value`` as JSON data; raises ``TypeError`` for what is not made of known records and plain values."""
    match value:
        case GraphKind():
            return {"kind": value.value}
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [to_plain(item) for item in value]
        case torch.dtype():
            return {"dtype": str(value).removeprefix("torch.")}
        case torch.device():
            return {"device": str(value)}
    name = type(value).__name__
    if not is_dataclass(value) or _RECORDS.get(name) is not type(value):
        raise TypeError(f"a {name} cannot be saved with a compiled graph")
    kept = (field.name for field in fields(value) if field.name not in _LEFT_OUT)
    return {"record": name, "fields": {field: to_plain(getattr(value, field)) for field in kept}}


def from_plain(plain: Any) -> Any:
    """Return what :func:`to_plain` got; sequences come back as tuples."""
    match plain:
        case list():
            return tuple(from_plain(item) for item in plain)
        case {"kind": kind}:
            return GraphKind(kind)
        case {"dtype": name}:
            dtype = getattr(torch, name)
            assert isinstance(dtype, torch.dtype)
            return dtype
        case {"device": name}:
            return torch.device(name)
        case {"record": name, "fields": values}:
            kind = _RECORDS[name]
            rest: dict[str, Any] = {"graph": fx.Graph(), "constants": ()} if kind is CompilationUnit else {}
            return kind(**rest, **{field: from_plain(value) for field, value in values.items()})
    return plain
