"""Instructions of the scalar engine, which evaluates functions of one number, and those that keep running results."""

from typing import Any

import torch

from torch_neuronx_nki import dtypes, ops
from torch_neuronx_nki.checks import ON_CHIP, Checker
from torch_neuronx_nki.engines import Engine, ReduceCmd
from torch_neuronx_nki.issue import Plan, issue, opcode
from torch_neuronx_nki.ops import ACTIVATIONS, BINARY, UNARY_ALU, Operator
from torch_neuronx_nki.simulator import arithmetic
from torch_neuronx_nki.simulator.accumulators import accumulate
from torch_neuronx_nki.tensors import NkiTensor

FP32_MIN = -3.4028234663852886e38
"""What ``range_select`` writes outside of the range."""


def _activation_operands(check: Checker, dst: Any, data: Any, op: Any, bias: Any, scale: Any) -> None:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    check.operator("op", op, ACTIVATIONS)
    check.per_partition("scale", scale, data)
    if bias is not None:
        check.per_partition("bias", bias, data, float32_only=False)
        if type(bias) is not NkiTensor:
            check.generation_from(3, "a number as bias")


def _reduce_result(check: Checker, reduce_res: Any, data: NkiTensor) -> None:
    if reduce_res is not None:
        check.buffer("reduce_res", check.tensor("reduce_res", reduce_res), ON_CHIP)
        check.per_partition("reduce_res", reduce_res, data, float32_only=False)


@opcode(">dst data bias scale >reduce_res", "op reduce_op reduce_cmd")
def _activation(
    check: Checker,
    dst: Any,
    data: Any,
    bias: Any,
    scale: Any,
    reduce_res: Any,
    op: Any,
    reduce_op: Any,
    reduce_cmd: ReduceCmd,
) -> Plan:
    _activation_operands(check, dst, data, op, bias, scale)
    _reduce_result(check, reduce_res, data)
    if reduce_cmd == ReduceCmd.idle and reduce_res is None:
        run = arithmetic.activation(op, dst, data, bias)
        return Plan(lambda out, x, b, s, _: run(out, x, b, s), Engine.scalar, overwrites=True)
    if reduce_op is not None:
        check.operator("reduce_op", reduce_op, frozenset({ops.add}))
    compute, partition = arithmetic.activation(op, dst, data, bias, keeps=True), data.partition
    command, result = ReduceCmd(reduce_cmd), None if reduce_res is None else reduce_res.codec

    def reduce(out: torch.Tensor, x: torch.Tensor, b: Any, s: Any, res: torch.Tensor | None) -> None:
        initial = None
        if command is ReduceCmd.load_reduce and res is not None and result is not None:
            initial = result.load(res).clone()
        values = compute(out, x, b, s)
        total = accumulate(values, ops.add, command, partition, vector=False, initial=initial)
        if res is not None and result is not None:
            result.save(res, total if res.dim() == 2 else total.reshape(res.shape))

    return Plan(reduce, Engine.scalar, overwrites=True)


def activation(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Operator | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    name: str | None = None,
) -> Any:
    """``dst = op(data * scale + bias)``; ``reduce_cmd`` also keeps the sum per partition, written to ``reduce_res``.

    ``scale`` and ``bias`` are numbers or one element per partition. Engine: scalar.
    """
    return issue(_activation, (dst, data, bias, scale, reduce_res), (op, reduce_op, reduce_cmd), name)


def activation_reduce(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    reduce_op: Operator,
    reduce_res: NkiTensor,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> Any:
    """``dst = op(data * scale + bias)`` and ``reduce_res`` its sum per partition. Engine: scalar."""
    return issue(_activation, (dst, data, bias, scale, reduce_res), (op, reduce_op, ReduceCmd.reset_reduce), name)


@opcode(">dst data imm0 imm1 >reduce_res", "op op0 op1 relu_param reverse0 reverse1 reduce_op reduce_cmd")
def _activate2(
    check: Checker,
    dst: Any,
    data: Any,
    imm0: Any,
    imm1: Any,
    reduce_res: Any,
    op: Any,
    op0: Any,
    op1: Any,
    relu_param: float,
    reverse0: bool,
    reverse1: bool,
    reduce_op: Any,
    reduce_cmd: ReduceCmd,
) -> Plan:
    check.generation_from(4, "activate2")
    check.language_from((0, 4), "activate2")
    _activation_operands(check, dst, data, op, None, 1.0)
    for name, operator, value in (("op0", op0, imm0), ("op1", op1, imm1)):
        if operator is not None:
            check.operator(name, operator, BINARY)
            check.per_partition(name.replace("op", "imm"), value, data)
    _reduce_result(check, reduce_res, data)
    if reduce_op is not None:
        check.operator("reduce_op", reduce_op, frozenset({ops.add, ops.maximum, ops.minimum, ops.abs_max, ops.abs_min}))
    rank, load, save = len(data.shape), data.codec.load, arithmetic.saver(dst, data.shape)
    first = None if op0 is None else arithmetic.ordered(op0, reverse0)
    second = None if op1 is None else arithmetic.ordered(op1, reverse1)
    compute, partition = op.compute, data.partition
    if op is ops.prelu:
        compute = lambda x: torch.where(x >= 0, x, x * relu_param)  # noqa: E731
    result = None if reduce_res is None else reduce_res.codec

    def run(out: torch.Tensor, x: torch.Tensor, a: Any, b: Any, res: torch.Tensor | None) -> None:
        values = load(x)
        if first is not None:
            values = first(values, arithmetic.as_operand(a, rank))
        if second is not None:
            values = second(values, arithmetic.as_operand(b, rank))
        values = compute(values)
        initial = None if res is None or result is None else result.load(res).clone()
        save(out, values)
        if reduce_cmd != ReduceCmd.idle:
            total = accumulate(
                values, reduce_op or ops.add, ReduceCmd(reduce_cmd), partition, vector=False, initial=initial
            )
            if res is not None and result is not None:
                result.save(res, total.reshape(res.shape))

    return Plan(run, Engine.scalar)


def activate2(
    dst: NkiTensor,
    op: Operator,
    data: NkiTensor,
    imm0: Any = None,
    imm1: Any = None,
    op0: Operator | None = None,
    op1: Operator | None = None,
    relu_param: float = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Operator | None = None,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    name: str | None = None,
) -> Any:
    """``dst = op((data op0 imm0) op1 imm1)``, with a choice of running reductions. Engine: scalar, from gen4."""
    parameters = (op, op0, op1, relu_param, reverse0, reverse1, reduce_op, reduce_cmd)
    return issue(_activate2, (dst, data, imm0, imm1, reduce_res), parameters, name)


@opcode(">dst src max_value >reduce_res reduce_init", "reduce_cmd")
def _exponential(
    check: Checker, dst: Any, src: Any, max_value: Any, reduce_res: Any, reduce_init: Any, reduce_cmd: ReduceCmd
) -> Plan:
    check.generation_from(4, "exponential")
    _activation_operands(check, dst, src, ops.exp, None, 1.0)
    check.per_partition("max_value", max_value, src)
    _reduce_result(check, reduce_res, src)
    rank, load, save, partition = len(src.shape), src.codec.load, arithmetic.saver(dst, src.shape), src.partition
    result = None if reduce_res is None else reduce_res.codec

    def run(out: torch.Tensor, x: torch.Tensor, top: Any, res: torch.Tensor | None, initial: Any) -> None:
        values = torch.exp(load(x) - arithmetic.as_operand(top, rank))
        save(out, values)
        if reduce_cmd != ReduceCmd.idle:
            total = accumulate(values, ops.add, ReduceCmd(reduce_cmd), partition, vector=True, initial=initial)
            if res is not None and result is not None:
                result.save(res, total.reshape(res.shape))

    return Plan(run, Engine.vector)


def exponential(
    dst: NkiTensor,
    src: NkiTensor,
    max_value: Any = 0.0,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_init: Any = 0.0,
    name: str | None = None,
) -> Any:
    """``dst = exp(src - max_value)``, with a running sum per partition. Engine: vector, from gen4."""
    return issue(_exponential, (dst, src, max_value, reduce_res, reduce_init), (reduce_cmd,), name)


_RUNNING = frozenset({ops.add, ops.multiply, ops.maximum, ops.minimum})


@opcode(">dst data operand0 >reduce_res reduce_init", "op0 reduce_op reverse0 reduce_cmd reduce_res_negate")
def _tensor_scalar_reduce(
    check: Checker,
    dst: Any,
    data: Any,
    operand0: Any,
    reduce_res: Any,
    reduce_init: Any,
    op0: Any,
    reduce_op: Any,
    reverse0: bool,
    reduce_cmd: ReduceCmd,
    reduce_res_negate: bool,
) -> Plan:
    for name, operand in (("dst", dst), ("data", data)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, data=data)
    check.operator("op0", op0, BINARY | UNARY_ALU)
    check.operator("reduce_op", reduce_op, _RUNNING)
    if op0 not in UNARY_ALU:
        check.per_partition("operand0", operand0, data)
    _reduce_result(check, reduce_res, data)
    if reduce_res is None:
        check.language_from((0, 6), "reduce_res=None")
    rank, load, save, partition = len(data.shape), data.codec.load, arithmetic.saver(dst, data.shape), data.partition
    compute = arithmetic.ordered(op0, reverse0)
    result = None if reduce_res is None else reduce_res.codec

    def run(out: torch.Tensor, x: torch.Tensor, s: Any, res: torch.Tensor | None, initial: Any) -> None:
        values = compute(load(x), arithmetic.as_operand(0.0 if s is None else s, rank))
        if initial is None and res is not None and result is not None:
            initial = result.load(res).clone()
        save(out, values)
        total = accumulate(values, reduce_op, ReduceCmd(reduce_cmd), partition, vector=True, initial=initial)
        if res is not None and result is not None:
            result.save(res, (-total if reduce_res_negate else total).reshape(res.shape))

    return Plan(run, Engine.vector)


def tensor_scalar_reduce(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Operator,
    operand0: Any,
    reduce_op: Operator,
    reduce_res: NkiTensor | None = None,
    reverse0: bool = False,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> Any:
    """``dst = data op0 operand0``; ``reduce_res`` is its add, multiply, maximum or minimum per partition. Vector."""
    parameters = (op0, reduce_op, reverse0, reduce_cmd, reduce_res_negate)
    return issue(_tensor_scalar_reduce, (dst, data, operand0, reduce_res, reduce_init), parameters, name)


@opcode(
    ">dst on_true_tile bound0 bound1 >reduce_res",
    "comp_op0 comp_op1 reduce_cmd reduce_op range_start on_false_value",
)
def _range_select(
    check: Checker,
    dst: Any,
    on_true_tile: Any,
    bound0: Any,
    bound1: Any,
    reduce_res: Any,
    comp_op0: Any,
    comp_op1: Any,
    reduce_cmd: ReduceCmd,
    reduce_op: Any,
    range_start: Any,
    on_false_value: float,
) -> Plan:
    check.generation_from(3, "range_select")
    for name, operand in (("dst", dst), ("on_true_tile", on_true_tile)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, on_true_tile=on_true_tile)
    compares = frozenset({ops.equal, ops.less, ops.less_equal, ops.greater, ops.greater_equal})
    check.operator("comp_op0", comp_op0, compares)
    check.operator("comp_op1", comp_op1, compares)
    check.operator("reduce_op", reduce_op, frozenset({ops.maximum}))
    for name, bound in (("bound0", bound0), ("bound1", bound1)):
        check.per_partition(name, check.tensor(name, bound), on_true_tile)
    if abs(float(on_false_value) / FP32_MIN - 1) > 1e-6:
        check.fail(
            "operand-value",
            f"on_false_value is {on_false_value}",
            limit=FP32_MIN,
            actual=on_false_value,
            advice="Leave it out: the engine has no other value.",
        )
    _reduce_result(check, reduce_res, on_true_tile)
    load, save, shape = on_true_tile.codec.load, arithmetic.saver(dst, on_true_tile.shape), on_true_tile.shape
    count, partition = on_true_tile.size // shape[0], on_true_tile.partition
    result = None if reduce_res is None else reduce_res.codec
    first, second = comp_op0.compute, comp_op1.compute

    def run(out: torch.Tensor, x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, res: Any) -> None:
        position = torch.arange(count, dtype=torch.float32) + float(range_start)
        inside = first(position, low.reshape(-1, 1)).bool() & second(position, high.reshape(-1, 1)).bool()
        values = torch.where(inside.reshape(shape), load(x), FP32_MIN)
        initial = None if res is None or result is None else result.load(res).clone()
        save(out, values)
        total = accumulate(values, reduce_op, ReduceCmd(reduce_cmd), partition, vector=True, initial=initial)
        if res is not None and result is not None:
            result.save(res, total.reshape(res.shape))

    return Plan(run, Engine.vector)


def range_select(
    dst: NkiTensor,
    on_true_tile: NkiTensor,
    comp_op0: Operator,
    comp_op1: Operator,
    bound0: NkiTensor,
    bound1: NkiTensor,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    reduce_res: NkiTensor | None = None,
    reduce_op: Operator = ops.maximum,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> Any:
    """Keep elements whose index compares true with both bounds of their partition; write FP32_MIN elsewhere.

    ``reduce_res`` is the maximum. Engine: vector, from gen3.
    """
    parameters = (comp_op0, comp_op1, reduce_cmd, reduce_op, int(range_start), on_false_value)
    return issue(_range_select, (dst, on_true_tile, bound0, bound1, reduce_res), parameters, name)


@opcode(">dst predicate on_true on_false >reduce_res", "reduce_cmd reduce_op reverse_pred")
def _select_reduce(
    check: Checker,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any,
    reduce_cmd: ReduceCmd,
    reduce_op: Any,
    reverse_pred: bool,
) -> Plan:
    for name, operand in (("dst", dst), ("predicate", predicate), ("on_true", on_true)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
    check.same_elements(dst=dst, predicate=predicate, on_true=on_true)
    check.not_both_psum(predicate, on_true)
    refused = (dtypes.tfloat32, dtypes.int32, dtypes.uint32)
    check.dtype("on_true", on_true, (dtype for dtype in dtypes.DTYPES if dtype not in refused))
    check.per_partition("on_false", on_false, on_true)
    check.operator("reduce_op", reduce_op, frozenset({ops.maximum}))
    _reduce_result(check, reduce_res, on_true)
    rank, shape, partition = len(on_true.shape), on_true.shape, on_true.partition
    load, save = on_true.codec.load, arithmetic.saver(dst, on_true.shape)
    result = None if reduce_res is None else reduce_res.codec
    load_mask = predicate.codec.load

    def run(out: torch.Tensor, mask: torch.Tensor, x: torch.Tensor, other: Any, res: Any) -> None:
        where = load_mask(mask).bool().reshape(shape)
        values = torch.where(~where if reverse_pred else where, load(x), arithmetic.as_operand(other, rank))
        initial = None if res is None or result is None else result.load(res).clone()
        save(out, values)
        if reduce_cmd != ReduceCmd.idle:
            total = accumulate(values, reduce_op, ReduceCmd(reduce_cmd), partition, vector=True, initial=initial)
            if res is not None and result is not None:
                result.save(res, total.reshape(res.shape))

    return Plan(run, Engine.vector)


def select_reduce(
    dst: NkiTensor,
    predicate: NkiTensor,
    on_true: NkiTensor,
    on_false: Any,
    reduce_res: NkiTensor | None = None,
    reduce_cmd: ReduceCmd = ReduceCmd.idle,
    reduce_op: Operator = ops.maximum,
    reverse_pred: bool = False,
    name: str | None = None,
) -> Any:
    """``dst = on_true where predicate else on_false``, with a running maximum. Engine: vector."""
    parameters = (reduce_cmd, reduce_op, reverse_pred)
    return issue(_select_reduce, (dst, predicate, on_true, on_false, reduce_res), parameters, name)


@opcode(">dst src imm0 imm1", "op0 op1 reduce_cmd")
def _tensor_scalar_cumulative(
    check: Checker, dst: Any, src: Any, imm0: Any, imm1: Any, op0: Any, op1: Any, reduce_cmd: ReduceCmd
) -> Plan:
    wide = (dtypes.int32, dtypes.uint32)
    for name, operand in (("dst", dst), ("src", src)):
        check.buffer(name, check.tensor(name, operand), ON_CHIP)
        check.not_packed(name, operand)
        check.dtype(name, operand, (dtype for dtype in dtypes.DTYPES if dtype not in wide))
    check.same_elements(dst=dst, src=src)
    check.operator("op0", op0, BINARY)
    check.operator("op1", op1, frozenset({ops.add, ops.subtract, ops.multiply, ops.maximum, ops.minimum}))
    check.per_partition("imm0", imm0, src)
    if imm1 is not None:
        check.per_partition("imm1", imm1, src)
    rank, load, save, partition = len(src.shape), src.codec.load, arithmetic.saver(dst, src.shape), src.partition
    first, second = arithmetic.binary(op0), op1.compute

    def run(out: torch.Tensor, x: torch.Tensor, a: Any, b: Any) -> None:
        values = first(load(x), arithmetic.as_operand(a, rank))
        flat = values.reshape(values.shape[0], -1)
        command = ReduceCmd(reduce_cmd)
        if command is ReduceCmd.reset_reduce:
            running = torch.full((flat.shape[0], 1), op1.identity)
        else:
            none = flat[:, :0] if flat.shape[1] == 0 else flat
            idle = ReduceCmd.load_reduce if command is ReduceCmd.load_reduce else ReduceCmd.idle
            running = (
                b.reshape(-1, 1).clone()
                if isinstance(b, torch.Tensor)
                else torch.full((flat.shape[0], 1), float(b or 0.0))
            )
            if idle is ReduceCmd.idle:
                running = accumulate(none, op1, ReduceCmd.idle, partition, vector=True).clone()
        steps = []
        for column in range(flat.shape[1]):
            running = second(running, flat[:, column : column + 1])
            steps.append(running)
        accumulate(flat[:, :1], op1, ReduceCmd.idle, partition, vector=True).copy_(running)
        save(out, torch.cat(steps, 1).reshape(values.shape))

    return Plan(run, Engine.vector)


def tensor_scalar_cumulative(
    dst: NkiTensor,
    src: NkiTensor,
    op0: Operator,
    op1: Operator,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce,
    name: str | None = None,
) -> Any:
    """``dst[:, i] = dst[:, i - 1] op1 (src[:, i] op0 imm0)`` along each partition.

    It starts from the identity of ``op1`` (``reset_reduce``), from ``imm1`` (``load_reduce``) or from the running
    result. Engine: vector.
    """
    return issue(_tensor_scalar_cumulative, (dst, src, imm0, imm1), (op0, op1, reduce_cmd), name)
