"""Registers, and what the chip is."""

from typing import Any

from torch_neuronx_nki.checks import SBUF, Checker
from torch_neuronx_nki.dtypes import Kind
from torch_neuronx_nki.engines import Engine, NcVersion
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.machine import Core, current_core, maybe_core
from torch_neuronx_nki.options import options
from torch_neuronx_nki.registers import NkiScalar
from torch_neuronx_nki.simulator import arithmetic
from torch_neuronx_nki.tensors import NkiTensor


def get_nc_version() -> NcVersion:
    """Return the generation of the core that runs, or that the environment chooses outside of a kernel."""
    core = maybe_core()
    return (core.limits if core is not None else options().limits).generation


def get_nc_sub_version() -> int:
    """Return the variant of the generation; there is one of each here."""
    return 0


def register_alloc(x: Any = None) -> NkiScalar:
    """Make a register that holds 0, a number, or the one element of a tensor."""
    made = NkiScalar(0)
    if type(x) is NkiTensor:
        register_load(made, x)
    elif x is not None:
        made.set(int(x))
    return made


def _register(check: Checker, name: str, operand: Any) -> None:
    if type(operand) is not NkiScalar:
        check.fail(
            "register",
            f"{name} is {operand!r}",
            limit="a register",
            actual=type(operand).__name__,
            advice="Make one with nisa.register_alloc.",
        )


def _one_element(check: Checker, name: str, operand: Any) -> None:
    check.tensor(name, operand)
    if operand.size != 1 or operand.dtype.kind is Kind.PACKED:
        check.fail(
            "register",
            f"{name} is {operand.dtype} of shape {operand.shape}",
            limit="one element",
            actual=operand.size,
            advice="Slice one element.",
        )


@opcode(">dst src", by_dma=True)
def _register_load(check: Checker, dst: Any, src: Any) -> Plan:
    _register(check, "dst", dst)
    _one_element(check, "src", src)

    def run(core: Core, to: NkiScalar, source: NkiTensor) -> None:
        values = source.data
        to.set(int(values.item() if source.dtype.is_integer else source.codec.load(values).item()))

    return Plan(run, Engine.sync, on_views=True)


def register_load(dst: NkiScalar, src: NkiTensor, name: str | None = None) -> Any:
    """Read one element of a tensor into a register, cut to an integer."""
    made = issue(_register_load, (dst, src), (), name)
    if not current_core().computes:
        dst.set(None)
    return made


@opcode(">dst src", by_dma=True)
def _register_store(check: Checker, dst: Any, src: Any) -> Plan:
    _register(check, "src", src)
    _one_element(check, "dst", dst)
    if dst.buffer not in SBUF and dst.on_chip:
        check.buffer("dst", dst, SBUF)

    def run(core: Core, to: NkiTensor, source: NkiScalar) -> None:
        to.codec.save(to.data, arithmetic.number(source.value).reshape(to.shape))
        if to.dtype.is_integer:
            to.data.fill_(source.value % (1 << to.dtype.itemsize * 8) if to.dtype.startswith("u") else source.value)

    return Plan(run, Engine.sync, on_views=True)


def register_store(dst: NkiTensor, src: NkiScalar, name: str | None = None) -> Any:
    """Write a register to one element of a tensor."""
    return issue(_register_store, (dst, src), (), name)


@opcode(">dst src", by_dma=True)
def _register_move(check: Checker, dst: Any, src: Any) -> Plan:
    _register(check, "dst", dst)
    if type(src) is not NkiScalar and not isinstance(src, int):
        _register(check, "src", src)

    def run(core: Core, to: NkiScalar, source: Any) -> None:
        to.set(int(source))

    return Plan(run, Engine.sync, on_views=True)


def register_move(dst: NkiScalar, src: Any, name: str | None = None) -> Any:
    """Set a register to another one, or to a number."""
    made = issue(_register_move, (dst, src), (), name)
    if not current_core().computes:
        dst.set(src._value if type(src) is NkiScalar else int(src))
    return made
