"""Instructions that compute each element by itself."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes, ops
from torch_neuronx_nki.checks import ON_CHIP, Checker
from torch_neuronx_nki.dtypes import Kind
from torch_neuronx_nki.engines import Buffer, Engine
from torch_neuronx_nki.issue import NkiInstruction, Plan, issue, opcode
from torch_neuronx_nki.ops import BINARY, BITWISE, UNARY_ALU, Operator
from torch_neuronx_nki.simulator import arithmetic, notes
from torch_neuronx_nki.tensors import NkiTensor

_VECTOR_GPSIMD = (Engine.vector, Engine.gpsimd)
_ANY = (Engine.vector, Engine.scalar, Engine.gpsimd)
_INT32 = frozenset({dtypes.int32, dtypes.uint32})


@opcode(">dst src", "engine")
def _tensor_copy(check: Checker, dst: Any, src: Any, engine: Engine) -> Plan:
    check.tensor("dst", dst)
    check.tensor("src", src)
    check.buffer("dst", dst, ON_CHIP)
    check.buffer("src", src, ON_CHIP)
    check.same_elements(dst=dst, src=src)
    ran = check.engine(engine, _ANY)
    check.no_psum_on_gpsimd(ran, dst=dst, src=src)
    if ran is Engine.scalar:
        check.generation_from(3, "tensor_copy on the scalar engine")
    if dst.dtype != src.dtype:
        check.not_packed("dst", dst)
        check.not_packed("src", src)
    held = src.codec is dst.codec and notes.can_hold(dst) and notes.can_hold(src)
    return Plan(arithmetic.copy(dst, src), ran, defers=notes.copy if held else None, overwrites=True)


def tensor_copy(dst: NkiTensor, src: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Copy a tile within SBUF and PSUM: bit for bit within a type, through float32 between types.

    Engines: vector, scalar (from gen3), gpsimd (no PSUM).
    """
    return issue(_tensor_copy, (dst, src), (engine,), name)


@opcode(">dst", "value engine")
def _memset(check: Checker, dst: Any, value: Any, engine: Engine) -> Plan:
    check.tensor("dst", dst)
    check.buffer("dst", dst, ON_CHIP)
    ran = check.engine(engine, _ANY)
    check.no_psum_on_gpsimd(ran, dst=dst)
    if isinstance(value, str) or not hasattr(value, "__float__"):
        check.fail(
            "operand-value",
            f"value is {value!r}",
            limit="a number",
            actual=type(value).__name__,
            advice="Pass a number.",
        )
    if dst.dtype.kind is Kind.PACKED:
        if value != 0:
            check.fail(
                "operand-value",
                f"value is {value!r} for {dst.dtype}",
                limit=0,
                actual=value,
                advice="Packed types can be set to 0 only.",
            )
        return Plan(torch.Tensor.zero_, ran, overwrites=True)
    if dst.dtype.is_integer and float(value) != int(value):
        check.fail(
            "operand-value",
            f"value is {value!r} for {dst.dtype}",
            limit="an integer",
            actual=value,
            advice="Give a value of the destination's type.",
        )
    if dst.dtype.is_integer:
        whole, codec = torch.tensor(int(value)), dst.codec
        return Plan(lambda out: arithmetic.save_integers(out, whole, codec), ran, overwrites=True)
    filled = torch.empty(1, dtype=dst.codec.carrier)
    dst.codec.save(filled, torch.tensor([arithmetic.single(value)]))
    if dst.codec.native:
        constant = arithmetic.single(value)
        return Plan(lambda out: out.fill_(constant), ran, overwrites=True)
    return Plan(lambda out: out.copy_(filled), ran, overwrites=True)


def memset(dst: NkiTensor, value: Any, engine: Engine = Engine.unknown, name: str | None = None) -> Any:
    """Fill ``dst`` with a number of its type. Engines: vector, scalar, gpsimd (no PSUM)."""
    return issue(_memset, (dst,), (value, engine), name)


@opcode(">dst data1 data2", "op engine")
def _tensor_tensor(check: Checker, dst: Any, data1: Any, data2: Any, op: Any, engine: Engine) -> Plan:
    for name, operand in (("dst", dst), ("data1", data1), ("data2", data2)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data1=data1, data2=data2)
    check.not_both_psum(data1, data2)
    check.operator("op", op, BINARY | BITWISE)
    check.bit_operands(op, dst=dst, data1=data1, data2=data2)
    integers = {dst.dtype, data1.dtype, data2.dtype} <= _INT32 and op not in BITWISE
    in_psum = Buffer.psum in (dst.buffer, data1.buffer, data2.buffer)
    allowed: tuple[Engine, ...] = _VECTOR_GPSIMD
    if op is ops.power:
        allowed = (Engine.gpsimd,)
    elif op in BITWISE:
        allowed = (Engine.vector,)
    elif integers and engine == Engine.unknown and not in_psum:
        allowed = (Engine.gpsimd, Engine.vector)
    ran = check.engine(engine, allowed)
    check.no_psum_on_gpsimd(ran, dst=dst, data1=data1, data2=data2)
    if op in BITWISE:
        return Plan(arithmetic.bits(op, dst, data1), ran, overwrites=True)
    if integers and ran is Engine.gpsimd and op is not ops.power:
        return Plan(arithmetic.exact_integers(op, dst, data1, data2), ran, overwrites=True)
    return Plan(arithmetic.tensor_tensor(op, dst, data1, data2), ran, overwrites=True)


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Operator,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Any:
    """``dst = data1 op data2``, element by element, in float32.

    int32 and uint32 on gpsimd are exact, modulo 2**32; elsewhere they go through float32. ``power`` runs on gpsimd
    only, bit operations on vector only. Engines: vector, gpsimd (no PSUM).
    """
    return issue(_tensor_tensor, (dst, data1, data2), (op, engine), name)


@opcode(">dst data operand0 operand1", "op0 reverse0 op1 reverse1 engine")
def _tensor_scalar(
    check: Checker,
    dst: Any,
    data: Any,
    operand0: Any,
    operand1: Any,
    op0: Any,
    reverse0: bool,
    op1: Any,
    reverse1: bool,
    engine: Engine,
) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    allowed = BINARY | BITWISE | UNARY_ALU
    check.operator("op0", op0, allowed)
    if op1 is not None:
        check.operator("op1", op1, allowed)
    check.same_kind(op0, op1)
    bitwise = op0 in BITWISE
    for name, op, operand in (("operand0", op0, operand0), ("operand1", op1, operand1)):
        if op is not None and not (op in UNARY_ALU or op is ops.invert):
            check.per_partition(name, operand, data, float32_only=not bitwise)
        if op in (ops.square, ops.relu):
            check.language_from((0, 4), f"nl.{op.name} as an operator")
            check.generation_from(4, f"nl.{op.name} as an operator")
    if bitwise:
        check.bit_operands(op0, dst=dst, data=data)
        ran = check.engine(engine, (Engine.vector,))
        return Plan(arithmetic.tensor_scalar_bits(dst, data, op0, reverse0, op1, reverse1), ran, overwrites=True)
    ran = check.engine(engine, _ANY)
    check.no_psum_on_gpsimd(ran, dst=dst, data=data)
    if ran is Engine.scalar:
        check.generation_from(3, "tensor_scalar on the scalar engine")
        if check.generation < 4 and (op0, op1) not in (
            (ops.multiply, ops.add),
            (ops.multiply, None),
            (ops.add, None),
        ):
            check.fail(
                "operator",
                f"the scalar engine is asked for nl.{op0.name} and {op1!r}",
                limit="multiply and add, multiply, add",
                actual=(op0.name, getattr(op1, "name", None)),
                advice="Use the vector engine.",
            )
    if ran is Engine.gpsimd and engine == Engine.gpsimd and (op0 is ops.rsqrt) is False and op1 is ops.rsqrt:
        check.fail(
            "operator",
            "gpsimd takes rsqrt as the first operator",
            limit="op0",
            actual="op1",
            advice="Use the vector engine.",
        )
    return Plan(arithmetic.tensor_scalar(dst, data, op0, reverse0, op1, reverse1), ran, overwrites=True)


def tensor_scalar(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Any,
    reverse0: bool = False,
    op1: Operator | None = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> Any:
    """``dst = (data op0 operand0) op1 operand1``; a reversed operator has its operand on the left.

    An operand is a number, or a float32 tile of one element per partition. Engines: vector, gpsimd (no PSUM), scalar
    (from gen3; before gen4 only multiply and add).
    """
    return issue(_tensor_scalar, (dst, data, operand0, operand1), (op0, reverse0, op1, reverse1, engine), name)


@opcode(">dst data operand0 operand1", "op0 op1 reverse0 reverse1")
def _scalar_tensor_tensor(
    check: Checker,
    dst: Any,
    data: Any,
    operand0: Any,
    operand1: Any,
    op0: Any,
    op1: Any,
    reverse0: bool,
    reverse1: bool,
) -> Plan:
    for name, operand in (("dst", dst), ("data", data), ("operand1", operand1)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data, operand1=operand1)
    check.not_both_psum(data, operand1)
    check.operator("op0", op0, BINARY | UNARY_ALU)
    check.operator("op1", op1, BINARY)
    if op0 not in UNARY_ALU:
        check.per_partition("operand0", operand0, data)
    return Plan(
        arithmetic.scalar_tensor_tensor(dst, data, operand1, op0, reverse0, op1, reverse1),
        Engine.vector,
        overwrites=True,
    )


def scalar_tensor_tensor(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Any,
    op1: Operator,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> Any:
    """``dst = (data op0 operand0) op1 operand1`` with a scalar, then a tile. Engine: vector."""
    return issue(_scalar_tensor_tensor, (dst, data, operand0, operand1), (op0, op1, reverse0, reverse1), name)


@opcode(">dst data")
def _reciprocal(check: Checker, dst: Any, data: Any) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    run = arithmetic.activation(ops.reciprocal, dst, data)
    return Plan(lambda out, x: run(out, x, None, 1.0), Engine.vector, overwrites=True)


def reciprocal(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> Any:
    """``dst = 1 / data``. Engine: vector."""
    return issue(_reciprocal, (dst, data), (), name)


@opcode(">dst src predicate", "reverse_pred")
def _tensor_copy_predicated(check: Checker, dst: Any, src: Any, predicate: Any, reverse_pred: bool) -> Plan:
    check.buffer("dst", check.tensor("dst", dst), ON_CHIP)
    check.buffer("predicate", check.tensor("predicate", predicate), ON_CHIP)
    check.dtype("predicate", predicate, (dtypes.uint8, dtypes.uint16, dtypes.uint32))
    check.same_elements(dst=dst, predicate=predicate)
    shape = dst.shape
    if type(src) is NkiTensor:
        check.buffer("src", src, ON_CHIP)
        check.same_elements(dst=dst, src=src)
        check.same_dtype(dst=dst, src=src)
        check.not_both_psum(src, predicate)
    else:
        check.per_partition("src", src, dst)
    save, load = dst.codec.save, dst.codec.load

    def run(out: torch.Tensor, values: Any, mask: torch.Tensor) -> None:
        where = mask.bool().reshape(shape)
        if reverse_pred:
            where = ~where
        if isinstance(values, torch.Tensor):
            out.copy_(torch.where(where, values.reshape(shape), out))
        else:
            save(out, torch.where(where, arithmetic.single(values), load(out)))

    return Plan(run, Engine.vector, updates=("dst",))


def tensor_copy_predicated(
    dst: NkiTensor, src: Any, predicate: NkiTensor, reverse_pred: bool = False, name: str | None = None
) -> Any:
    """Write ``src``, a tile or a number, where ``predicate`` is not 0 (where it is, if reversed). Engine: vector."""
    return issue(_tensor_copy_predicated, (dst, src, predicate), (reverse_pred,), name)


__all__ = [
    "NkiInstruction",
    "memset",
    "reciprocal",
    "scalar_tensor_tensor",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_scalar",
    "tensor_tensor",
]
