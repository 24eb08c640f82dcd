"""Random numbers. The chip's bit streams are not documented, so these are torch's; equal seeds give equal numbers."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes
from torch_neuronx_nki.checks import ON_CHIP, SBUF, Checker
from torch_neuronx_nki.engines import Engine
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.machine import Core, current_core
from torch_neuronx_nki.tensors import NkiTensor, scalar_value


def _generator(core: Core) -> torch.Generator:
    if core.generator is None:
        core.generator = torch.Generator().manual_seed(core.index)
    return core.generator


def seed(value: Any) -> None:
    """Seed the core's generator with a number or the one element of a tensor."""
    core = current_core()
    core.generator = torch.Generator().manual_seed(int(scalar_value(value)) * 2 + core.index)


@opcode(">dst", "engine")
def _rng(check: Checker, dst: Any, engine: Engine) -> Plan:
    check.buffer("dst", check.tensor("dst", dst), ON_CHIP)
    check.dtype("dst", dst, (dtypes.int32, dtypes.uint32, dtypes.int16, dtypes.uint16, dtypes.int8, dtypes.uint8))
    ran = check.engine(engine, (Engine.vector, Engine.gpsimd))
    check.no_psum_on_gpsimd(ran, dst=dst)
    bits = dst.dtype.itemsize * 8

    def run(core: Core, to: NkiTensor) -> None:
        values = torch.randint(0, 1 << bits, to.shape, generator=_generator(core))
        signed = to.dtype.startswith("int")
        to.data.copy_(torch.where(values >= 1 << (bits - 1), values - (1 << bits), values) if signed else values)

    return Plan(run, ran, on_views=True)


def rng(dst: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Fill with random bits. Engines: vector, gpsimd."""
    return issue(_rng, (dst,), (engine,), name)


@opcode(">dst low high")
def _rand2(check: Checker, dst: Any, low: Any, high: Any) -> Plan:
    check.generation_from(4, "rand2")
    return _uniform(check, dst, low, high)


def _uniform(check: Checker, dst: Any, low: Any, high: Any) -> Plan:
    check.buffer("dst", check.tensor("dst", dst), ON_CHIP)
    check.not_packed("dst", dst)
    check.per_partition("low", low, dst)
    check.per_partition("high", high, dst)

    def run(core: Core, to: NkiTensor, least: Any, most: Any) -> None:
        bottom, top = (float(x) if type(x) is not NkiTensor else x.data for x in (least, most))
        to.codec.save(to.data, torch.rand(to.shape, generator=_generator(core)) * (top - bottom) + bottom)

    return Plan(run, Engine.vector, on_views=True)


def rand2(dst: NkiTensor, low: Any = 0.0, high: Any = 1.0, name: str | None = None) -> Any:
    """Fill with random numbers from ``low`` to ``high``. Engine: vector, from gen4."""
    return issue(_rand2, (dst, low, high), (), name)


@opcode(">dst low high")
def _random_uniform(check: Checker, dst: Any, low: Any, high: Any) -> Plan:
    return _uniform(check, dst, low, high)


def random_uniform(dst: NkiTensor) -> Any:
    """Fill with random numbers from 0 to 1: what ``nl.rand`` is made of."""
    return issue(_random_uniform, (dst, 0.0, 1.0))


@opcode(">dst data prob")
def _dropout(check: Checker, dst: Any, data: Any, prob: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    check.per_partition("prob", prob, data)

    def run(core: Core, to: NkiTensor, source: NkiTensor, rate: Any) -> None:
        chance = float(rate) if type(rate) is not NkiTensor else rate.codec.load(rate.data).reshape(-1, 1)
        flat = source.codec.load(source.data).reshape(source.shape[0], -1)
        dropped = torch.rand(flat.shape, generator=_generator(core)) < chance
        to.codec.save(to.data, torch.where(dropped, 0.0, flat).reshape(to.shape))

    return Plan(run, Engine.vector, on_views=True)


def dropout(dst: NkiTensor, data: NkiTensor, prob: Any, name: str | None = None) -> Any:
    """Set each element to 0 with probability ``prob``; the others stay. Engine: vector."""
    return issue(_dropout, (dst, data, prob), (), name)


@opcode("seeds", "engine")
def _set_rng_seed(check: Checker, seeds: Any, engine: Engine) -> Plan:
    check.buffer("seeds", check.tensor("seeds", seeds), SBUF)
    if seeds.dtype.itemsize != 4:
        check.dtype("seeds", seeds, (dtypes.uint32, dtypes.int32))

    def run(core: Core, source: NkiTensor) -> None:
        first = source.data.reshape(-1)[0].view(torch.int32).item()
        core.generator = torch.Generator().manual_seed(int(first) * 2 + core.index)

    return Plan(run, check.engine(engine, (Engine.vector, Engine.gpsimd)), on_views=True)


def set_rng_seed(seeds: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Seed the core's generator with the first element. Engines: vector, gpsimd."""
    return issue(_set_rng_seed, (seeds,), (engine,), name)


@opcode("src_seeds", "engine")
def _rand_set_state(check: Checker, src_seeds: Any, engine: Engine) -> Plan:
    check.buffer("src_seeds", check.tensor("src_seeds", src_seeds), SBUF)
    check.dtype("src_seeds", src_seeds, (dtypes.uint32,))

    def run(core: Core, source: NkiTensor) -> None:
        words = source.data.view(torch.int32).reshape(-1).tolist()
        mixed = 0
        for word in words:
            mixed = (mixed * 1_000_003 + word) % 2**63
        core.generator = torch.Generator().manual_seed(mixed)

    return Plan(run, check.engine(engine, (Engine.vector, Engine.gpsimd)), on_views=True)


def rand_set_state(src_seeds: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Seed the core's generator with all words of ``src_seeds``."""
    return issue(_rand_set_state, (src_seeds,), (engine,), name)


@opcode(">dst", "engine")
def _rand_get_state(check: Checker, dst: Any, engine: Engine) -> Plan:
    check.buffer("dst", check.tensor("dst", dst), SBUF)
    check.dtype("dst", dst, (dtypes.uint32,))

    def run(core: Core, to: NkiTensor) -> None:
        words = torch.randint(0, 2**32, to.shape, generator=_generator(core))
        to.data.copy_(words)
        mixed = 0
        for word in words.to(torch.int32).reshape(-1).tolist():
            mixed = (mixed * 1_000_003 + word) % 2**63
        core.generator = torch.Generator().manual_seed(mixed)

    return Plan(run, check.engine(engine, (Engine.vector, Engine.gpsimd)), on_views=True)


def rand_get_state(dst: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Write words from which :func:`rand_set_state` goes on with the same numbers."""
    return issue(_rand_get_state, (dst,), (engine,), name)
