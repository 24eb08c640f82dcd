"""What instructions look at before they run: one method per question, each named after the rule that it enforces.

A check that fails raises :class:`NkiValidationError` with the rule, its limit, what the kernel has, and the kernel's
line. An instruction is checked once per combination of shapes, types, memories and options, and then remembered.
"""

from collections.abc import Iterable
from typing import Any, NoReturn

from torch_neuronx_nki.dtypes import Dtype, Kind
from torch_neuronx_nki.engines import Buffer, Engine
from torch_neuronx_nki.machine import Core, violation
from torch_neuronx_nki.ops import BITWISE, Operator, OperatorKind
from torch_neuronx_nki.targets import PARTITIONS
from torch_neuronx_nki.tensors import NkiTensor

SBUF = frozenset({Buffer.sbuf})
PSUM = frozenset({Buffer.psum})
ON_CHIP = frozenset({Buffer.sbuf, Buffer.psum})
HBM = frozenset({Buffer.hbm, Buffer.shared_hbm})
NOT_PSUM = HBM | SBUF


class Checker:
    """The checks of one instruction on one core."""

    __slots__ = ("core", "generation", "limits", "opcode")

    def __init__(self, core: Core, opcode: str) -> None:
        self.core = core
        self.limits = core.limits
        self.generation = core.limits.generation
        self.opcode = opcode

    def fail(self, rule: str, what: str, *, limit: Any, actual: Any, advice: str) -> NoReturn:
        """Raise the error of ``rule``."""
        raise violation(rule, f"nisa.{self.opcode}: {what}", limit=limit, actual=actual, advice=advice)

    # Operands by themselves -------------------------------------------------------------------------------------------

    def tensor(self, name: str, operand: Any) -> NkiTensor:
        """``operand`` is a tensor of the kernel."""
        if type(operand) is not NkiTensor:
            self.fail(
                "tensor-expected",
                f"{name} is {operand!r}",
                limit="a tensor",
                actual=type(operand).__name__,
                advice="Pass a tensor made by nl.ndarray, or an argument of the kernel.",
            )
        return operand

    def buffer(self, name: str, tensor: NkiTensor, allowed: frozenset[Buffer]) -> None:
        """``tensor`` is in one of the ``allowed`` memories."""
        if tensor.buffer not in allowed:
            names = " or ".join(sorted(buffer.name for buffer in allowed))
            self.fail(
                "buffer",
                f"{name} is in {tensor.buffer.name}",
                limit=names,
                actual=tensor.buffer.name,
                advice=f"Move it to {names} first.",
            )

    def dtype(self, name: str, tensor: NkiTensor, allowed: Iterable[Dtype]) -> None:
        """``tensor`` has one of the ``allowed`` types."""
        allowed = tuple(allowed)
        if tensor.dtype not in allowed:
            names = ", ".join(sorted(map(str, allowed)))
            self.fail(
                "dtype",
                f"{name} is {tensor.dtype}",
                limit=names,
                actual=tensor.dtype,
                advice=f"Use one of: {names}.",
            )

    def not_packed(self, name: str, tensor: NkiTensor) -> None:
        """``tensor`` is no packed type."""
        if tensor.dtype.kind is Kind.PACKED:
            self.fail(
                "dtype",
                f"{name} is {tensor.dtype}, which has no arithmetic",
                limit="types that are not packed",
                actual=tensor.dtype,
                advice="Only nc_matmul_mx, copies and a memset with 0 take packed types.",
            )

    def partition_start(self, name: str, tensor: NkiTensor) -> None:
        """``tensor`` starts at a partition that engines can address for its size."""
        count = tensor.shape[0]
        start = tensor.partition + (tensor.memory.address[0] if tensor.memory.address else 0)
        step = 128 if count > 64 else 64 if count > 32 else 32
        if start % step or start + count > PARTITIONS:
            starts = tuple(range(0, PARTITIONS, step))
            self.fail(
                "partition-start",
                f"{name} is {count} partitions from partition {start}",
                limit=starts,
                actual=start,
                advice=f"Start {count} partitions at one of {starts}, or move them with nisa.dma_copy.",
            )

    def free_limit(self, name: str, tensor: NkiTensor, limit: int, least: int = 1) -> None:
        """``tensor`` has ``least`` to ``limit`` elements per partition."""
        count = free(tensor)
        if not least <= count <= limit:
            self.fail(
                "free-limit",
                f"{name} has {count} elements per partition",
                limit=(least, limit),
                actual=count,
                advice=f"Use tiles of {least} to {limit} elements.",
            )

    # Operands together ------------------------------------------------------------------------------------------------

    def same_partitions(self, **tensors: NkiTensor) -> None:
        """All have as many partitions as the first."""
        (first, reference), *others = tensors.items()
        for name, tensor in others:
            if tensor.shape[0] != reference.shape[0]:
                self.fail(
                    "partition-match",
                    f"{name} has {tensor.shape[0]} partitions, {first} has {reference.shape[0]}",
                    limit=reference.shape[0],
                    actual=tensor.shape[0],
                    advice="Slice both to the same partitions.",
                )

    def same_elements(self, **tensors: NkiTensor) -> None:
        """All have as many elements per partition as the first."""
        self.same_partitions(**tensors)
        (first, reference), *others = tensors.items()
        for name, tensor in others:
            if free(tensor) != free(reference):
                self.fail(
                    "element-match",
                    f"{name} has shape {tensor.shape}, {first} has shape {reference.shape}",
                    limit=free(reference),
                    actual=free(tensor),
                    advice="Tiles are not broadcast: slice, or use .broadcast on a dimension of size 1.",
                )

    def same_dtype(self, **tensors: NkiTensor) -> None:
        """All have the type of the first."""
        (first, reference), *others = tensors.items()
        for name, tensor in others:
            if tensor.dtype != reference.dtype:
                self.fail(
                    "dtype-match",
                    f"{name} is {tensor.dtype}, {first} is {reference.dtype}",
                    limit=reference.dtype,
                    actual=tensor.dtype,
                    advice="Convert with nisa.tensor_copy first.",
                )

    def shape(self, name: str, tensor: NkiTensor, expected: tuple[int, ...]) -> None:
        """``tensor`` has the shape ``expected``."""
        if tensor.shape != expected:
            self.fail(
                "shape-match",
                f"{name} has shape {tensor.shape}, not {expected}",
                limit=expected,
                actual=tensor.shape,
                advice=f"Give it the shape {expected}.",
            )

    def not_both_psum(self, one: NkiTensor, other: NkiTensor) -> None:
        """At most one input is in PSUM."""
        if one.buffer is Buffer.psum and other.buffer is Buffer.psum:
            self.fail(
                "psum-inputs",
                "two inputs are in psum",
                limit=1,
                actual=2,
                advice="Copy one of them to sbuf with nisa.tensor_copy.",
            )

    def per_partition(self, name: str, operand: Any, data: NkiTensor, *, float32_only: bool = True) -> None:
        """``operand`` is a number, a register, or a float32 tensor of one element per partition of ``data``."""
        if type(operand) is NkiTensor:
            self.buffer(name, operand, ON_CHIP)
            if operand.shape[0] != data.shape[0] or free(operand) != 1:
                self.fail(
                    "shape-match",
                    f"{name} has shape {operand.shape}",
                    limit=(data.shape[0], 1),
                    actual=operand.shape,
                    advice="Pass a number, or one element for each partition.",
                )
            if float32_only and operand.dtype != "float32":
                self.fail(
                    "dtype",
                    f"{name} is {operand.dtype}",
                    limit="float32",
                    actual=operand.dtype,
                    advice="Keep scalars per partition in float32.",
                )
        elif isinstance(operand, Operator | str | bool) or not hasattr(operand, "__float__"):
            self.fail(
                "operand-value",
                f"{name} is {operand!r}",
                limit="a number or a tensor of one element per partition",
                actual=type(operand).__name__,
                advice="Pass a number or a (partitions, 1) tensor.",
            )

    # Options ----------------------------------------------------------------------------------------------------------

    def engine(self, asked: Engine, allowed: tuple[Engine, ...]) -> Engine:
        """Return the engine that runs it: the one ``asked`` for, or the first of those ``allowed``."""
        if asked == Engine.unknown:
            return allowed[0]
        if asked not in allowed:
            names = ", ".join(engine.name for engine in allowed)
            self.fail(
                "engine",
                f"engine is {asked.name if isinstance(asked, Engine) else asked!r}",
                limit=names,
                actual=asked,
                advice=f"Use one of: {names}.",
            )
        return asked

    def no_psum_on_gpsimd(self, engine: Engine, **tensors: NkiTensor) -> None:
        """GpSimd touches no PSUM."""
        if engine is Engine.gpsimd:
            for name, tensor in tensors.items():
                if tensor.buffer is Buffer.psum:
                    self.fail(
                        "engine",
                        f"{name} is in psum, which gpsimd does not reach",
                        limit="sbuf",
                        actual="psum",
                        advice="Use the vector engine, or copy to sbuf first.",
                    )

    def generation_from(self, first: int, what: str) -> None:
        """``what`` exists from generation ``first`` on."""
        if self.generation < first:
            self.fail(
                "generation",
                f"{what} is not on {self.generation.name}",
                limit=f"gen{first}",
                actual=self.generation.name,
                advice=f"Use it from gen{first} on (trn2 is gen3, trn3 is gen4).",
            )

    def language_from(self, first: tuple[int, int], what: str) -> None:
        """``what`` exists from version ``first`` of the language on."""
        has = self.core.options.language
        if has < first:
            self.fail(
                "language",
                f"{what} is not in version {has[0]}.{has[1]}",
                limit=first,
                actual=has,
                advice=f"Use version {first[0]}.{first[1]} or later.",
            )

    def operator(self, name: str, op: Any, allowed: frozenset[Operator]) -> Operator:
        """``op`` is one of the ``allowed`` operators, and exists on this generation."""
        if not isinstance(op, Operator) or op not in allowed:
            names = ", ".join(sorted(operator.name for operator in allowed))
            self.fail(
                "operator",
                f"{name} is {op!r}",
                limit=names,
                actual=op,
                advice=f"Use one of: {names}.",
            )
        if op.since_gen4:
            self.generation_from(4, f"nl.{op.name}")
            self.language_from((0, 4), f"nl.{op.name}")
        return op

    def bit_operands(self, op: Operator, **tensors: NkiTensor) -> None:
        """The operands of a bit operation are integers; nothing is converted."""
        if op.kind is OperatorKind.BITS:
            for name, tensor in tensors.items():
                if not tensor.dtype.is_integer:
                    self.fail(
                        "dtype",
                        f"{name} is {tensor.dtype}, and nl.{op.name} works on bits",
                        limit="integer types",
                        actual=tensor.dtype,
                        advice="View the bytes as an integer type with .view.",
                    )

    def same_kind(self, op0: Operator, op1: Operator | None) -> None:
        """Both operators are bit operations, or neither is."""
        if op1 is not None and (op0 in BITWISE) != (op1 in BITWISE):
            self.fail(
                "operator-mix",
                f"nl.{op0.name} and nl.{op1.name} are mixed",
                limit="both bit operations or both arithmetic",
                actual=(op0.name, op1.name),
                advice="Use two instructions.",
            )

    def priority(self, priority: int | None) -> None:
        """``priority`` of a transfer is one that exists, on a chip that has them."""
        if priority is not None:
            self.generation_from(4, "a DMA priority")
            self.option("priority", priority, (0, 1, 2, 3))

    def option(self, name: str, value: Any, allowed: Iterable[Any]) -> None:
        """``value`` is one of those that exist."""
        allowed = tuple(allowed)
        if value not in allowed:
            self.fail(
                "option",
                f"{name} is {value!r}",
                limit=allowed,
                actual=value,
                advice=f"Use one of {allowed}.",
            )


def free(tensor: NkiTensor) -> int:
    """Return the elements per partition."""
    count = 1
    for size in tensor.shape[1:]:
        count *= size
    return count
