"""Every rule that the simulator looks at, by the identifier that errors carry. ``docs/nki_rules`` is made from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: what a kernel must do."""

    id: str
    says: str


_ALL = (
    Rule("argument-type", "A kernel takes tensors, None, booleans, numbers, strings, and tuples and dicts of them."),
    Rule("argument-dtype", "A tensor argument has a type that the chip holds: no float64, no 64-bit integers."),
    Rule("output-buffer", "A kernel returns tensors of nl.shared_hbm or its own arguments."),
    Rule("shared-allocation", "The cores of a launch allocate the same nl.shared_hbm tensors in the same order."),
    Rule("dtype-name", "A dtype is one of the language's."),
    Rule("shape", "Sizes are positive integers; a tensor on chip has two dimensions or more."),
    Rule("partition-limit", "A tensor on chip has at most 128 partitions."),
    Rule("partition-start", "More than 64 partitions start at 0, 33 to 64 at 0 or 64, fewer at 0, 32, 64 or 96."),
    Rule("address", "A placed tensor fits the memory at the partition and byte that are given."),
    Rule("index-bounds", "An index, a slice or an access pattern stays inside of its tensor."),
    Rule("index-type", "An index is an integer, a slice, nl.ds, an ellipsis or a register."),
    Rule("view", "A view keeps the partition dimension and the number of elements, and its layout can be strided."),
    Rule("view-dtype", "The last dimension divides by the ratio of the element sizes."),
    Rule("tensor-expected", "An operand is a tensor of the kernel."),
    Rule("operand-value", "A scalar operand is a number of the type that the instruction takes."),
    Rule("buffer", "An operand is in a memory that the instruction reaches."),
    Rule("psum-inputs", "Two inputs of an instruction are not both in PSUM."),
    Rule("partition-match", "Operands of an instruction have the same number of partitions."),
    Rule("element-match", "Operands have the same number of elements per partition."),
    Rule("shape-match", "Operands have the shapes that the instruction asks for."),
    Rule("dtype", "An operand has a type that the instruction takes."),
    Rule("dtype-match", "Operands that the instruction does not convert have one type."),
    Rule("operator", "The instruction, on its engine, takes the operator."),
    Rule("operator-mix", "Two operators of one instruction are both bit operations or both arithmetic."),
    Rule("engine", "The instruction runs on the engine that is asked for."),
    Rule("generation", "The instruction, or its option, exists on the chip's generation."),
    Rule("language", "The name or option exists in the version of the language."),
    Rule("axis", "Reductions run over the last dimensions, never over the partition."),
    Rule("argument-form", "What a function is given has the types and the form that its signature asks for."),
    Rule("option", "An option has one of the values that exist, and goes with the others."),
    Rule("free-limit", "An operand has no more elements per partition than the instruction takes."),
    Rule("matmul-contraction", "Both inputs of a matmul have the same number of partitions."),
    Rule("matmul-tile", "Tile size and position of a matmul fit the array."),
    Rule("dma-mode", "The way that descriptors are made fits the transfer."),
    Rule("dma-indirect", "An indirect index is inside of its tensor, or the transfer skips what is not."),
    Rule("register", "A register holds one 32-bit number, which is there when the kernel asks for it."),
    Rule("cores", "Cores meet with the same instruction, and name cores that run."),
    Rule("replica-group", "Replica groups list each rank once, and include the one that asks."),
    Rule("sbuf-capacity", "What is live at once in SBUF fits its partitions."),
    Rule("psum-capacity", "What is live at once in PSUM fits its banks."),
    Rule("psum-bank", "One matmul writes to one bank of PSUM, before gen4."),
    Rule("psum-accumulate", "A matmul adds to what earlier matmuls have written."),
    Rule("psum-address", "A tensor placed in PSUM begins at a bank."),
    Rule("address-overlap", "A placed tensor is not read after another one was written over it."),
    Rule("uninitialised-read", "What an instruction reads has been written before."),
    Rule("output-unwritten", "What a kernel returns has been written to."),
    Rule("operand-overlap", "A source and the destination are the same view, or do not overlap."),
    Rule("dma-overlap", "The source and the destination of a transfer do not overlap, or are the same view."),
    Rule("core-race", "Cores meet between a write to shared HBM by one and an access by the other."),
    Rule("dependency-order", "An instruction is issued after those that it depends on."),
)

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}
