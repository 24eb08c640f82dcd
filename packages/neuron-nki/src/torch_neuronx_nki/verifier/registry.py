"""Every rule with its code, what it is about, and how a kernel is mended. ``docs/nki_rules.md`` is made from it."""

from dataclasses import dataclass
from enum import StrEnum

from torch_neuronx_nki.rules import RULES
from torch_neuronx_nki.verifier.findings import Severity


class When(StrEnum):
    """What looks, and so when a finding is made."""

    INSTRUCTION = "instruction"
    """The simulator, before an instruction or an allocation; whatever the verifier's mode, it ends the kernel."""
    STREAM = "stream"
    """The verifier, from what earlier instructions did."""
    END = "end"
    """The verifier, when the kernel has ended."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One rule as the documentation shows it."""

    code: str
    rule: str
    """Its name: a key of :data:`torch_neuronx_nki.rules.RULES`."""
    why: str
    hint: str
    when: When = When.INSTRUCTION
    severity: Severity = Severity.ERROR

    @property
    def says(self) -> str:
        """What a kernel must do."""
        return RULES[self.rule].says


_S, _E = When.STREAM, When.END
_ENTRIES = (
    Entry("SBUF001", "sbuf-capacity", "A partition of SBUF holds 192 KiB on trn1, 224 KiB on trn2, 256 KiB on trn3. A "
          "tensor is live from the first to the last instruction that names it; 32 partitions or fewer count a quarter "
          "of their bytes, 64 or fewer half. Tensors placed by address are not counted.",
          "Use smaller tiles, or finish with one before the next is loaded.", _E),
    Entry("PSUM001", "psum-capacity", "PSUM has 8 banks of 2 KiB per partition, and a tensor begins at a bank. "
          "Lifetimes are counted as for SBUF001.",
          "Copy results to SBUF before the next ones are made.", _E),
    Entry("PSUM002", "psum-bank", "Before gen4, one pass of the tensor engine writes to a single bank.",
          "Let the columns of dst lie within 2 KiB, counted from the start of its tensor.", _S),
    Entry("PSUM003", "psum-accumulate", "What a matmul adds to is what earlier matmuls have written: other contents "
          "are not defined, before gen4 also those of a memset or a copy.",
          "Leave accumulate out, or use accumulate=False for the first matmul.", _S, Severity.WARNING),
    Entry("PSUM004", "psum-inputs", "The engines have one read port to PSUM.", "Copy one input to SBUF."),
    Entry("PSUM005", "psum-address", "A tensor in PSUM begins at a bank boundary.",
          "Place it at a multiple of 2048 bytes.", _S),
    Entry("PART001", "partition-limit", "SBUF and PSUM have 128 partitions.", "Split dimension 0."),
    Entry("PART002", "partition-start", "An engine addresses whole quadrants of 32 partitions.",
          "Start at a partition that the size allows, or move data with nisa.dma_copy."),
    Entry("PART003", "partition-match", "Engines work partition by partition.", "Slice to the same partitions."),
    Entry("ADDR001", "address", "A placed tensor lies inside of its memory.", "Choose a lower address."),
    Entry("ADDR002", "address-overlap", "Tensors that the kernel placed at overlapping addresses share bytes: what "
          "one writes destroys the other. The simulator keeps them apart, so its results would differ.",
          "Move one of them, or read the first before the second is written.", _S),
    Entry("INIT001", "uninitialised-read", "Memory holds arbitrary bytes until an instruction has written them.",
          "Write to all of what is read: nisa.memset, or a larger tile of the load.", _S),
    Entry("INIT002", "output-unwritten", "A result that the kernel never writes to holds arbitrary bytes.",
          "Copy the result to it with nisa.dma_copy.", _E),
    Entry("AP001", "index-bounds", "An access pattern counts elements of its allocation.",
          "Shorten the slice, or the pattern."),
    Entry("AP002", "index-type", "Other indices have no access pattern.", "Use integers, slices, nl.ds or a register."),
    Entry("AP003", "operand-overlap", "Engines stream: an element of a source may be overwritten before it is read "
          "where source and destination overlap without being the same view.",
          "Write to another tensor, or to exactly the view that is read.", _S, Severity.NOTE),
    Entry("TENS001", "shape", "Tensors on chip have a partition and a free dimension.", "Add a dimension of size 1."),
    Entry("TENS002", "dtype-name", "The chip has no other types.", "Use a type of nki.language."),
    Entry("TENS003", "tensor-expected", "Instructions address memory.", "Pass a tensor of the kernel."),
    Entry("TENS004", "view", "Views never copy.", "Make the layout contiguous first."),
    Entry("TENS005", "view-dtype", "Bytes are read in place.", "Make the last dimension a multiple of the ratio."),
    Entry("ARG001", "argument-type", "The compiler knows these kinds of arguments only.",
          "Pass tensors and plain values."),
    Entry("ARG002", "argument-dtype", "The chip has no 64-bit elements.", "Convert the argument before the call."),
    Entry("ARG003", "output-buffer", "The host reads results from HBM.", "Copy to a tensor of nl.shared_hbm."),
    Entry("OPND001", "operand-value", "Scalars are float32 numbers or one element per partition.", "Pass a number."),
    Entry("OPND002", "buffer", "Engines reach SBUF and PSUM, DMA reaches HBM and SBUF, GpSimd no PSUM.",
          "Move the data first."),
    Entry("OPND003", "element-match", "Tiles are not broadcast.", "Slice, or use .broadcast."),
    Entry("OPND004", "shape-match", "The instruction fixes the layout.", "Give the shape that the message names."),
    Entry("OPND005", "dtype", "The unit computes with these types only.", "Convert with nisa.tensor_copy."),
    Entry("OPND006", "dtype-match", "The instruction does not convert.", "Convert with nisa.tensor_copy."),
    Entry("OPND007", "free-limit", "One instruction works through a limited number of elements.", "Split the tile."),
    Entry("OPER001", "operator", "Each engine has its own set of operators.", "Use one that the message names."),
    Entry("OPER002", "operator-mix", "Bit operations convert nothing, arithmetic does.", "Use two instructions."),
    Entry("OPER003", "axis", "Engines do not add across partitions.", "Transpose, or multiply with ones."),
    Entry("OPER004", "option", "Other values do not exist.", "Use one that the message names."),
    Entry("OPER005", "argument-form", "Nothing can be read from other values, such as a number in place of a list.",
          "Compare the arguments with the function's signature."),
    Entry("ENG001", "engine", "Not every engine implements every instruction.", "Leave engine out."),
    Entry("ENG002", "generation", "Later chips have more instructions.", "Choose by nisa.get_nc_version()."),
    Entry("ENG003", "language", "Later versions of the language have more names.", "Raise the version."),
    Entry("MM001", "matmul-contraction", "The array contracts over partitions.", "Slice both to the same partitions."),
    Entry("MM002", "matmul-tile", "The array divides into tiles of 32 (from gen3), 64 and 128 rows and columns.",
          "Give size and position together, the position a multiple of the size."),
    Entry("DMA001", "dma-mode", "Hardware makes only plain descriptors.", "Leave dge_mode out."),
    Entry("DMA002", "dma-indirect", "An index outside of the tensor moves other data.",
          "Use oob_mode.skip, or mend the index."),
    Entry("DMA003", "dma-overlap", "Descriptors of one transfer run in any order.",
          "Copy by way of another tensor.", _S),
    Entry("REG001", "register", "Registers are scalars of a core.", "Load one 32-bit element."),
    Entry("CORE001", "cores", "A core that waits alone waits for ever.", "Issue the same meetings on every core."),
    Entry("CORE002", "shared-allocation", "Shared tensors are matched by order.", "Allocate alike on every core."),
    Entry("CORE003", "core-race", "The two cores of a logical core run at their own speed: what one writes to shared "
          "HBM is there for the other only after both have met.",
          "Put nisa.core_barrier between the write and the other core's access.", _S),
    Entry("COLL001", "replica-group", "Collectives match ranks by group.", "List every rank once."),
    Entry("ORD001", "dependency-order", "The simulator runs in program order, which contradicts the order that "
          "depends_on asks for.", "Issue the producer first.", _S),
)  # fmt: skip

REGISTRY: dict[str, Entry] = {entry.rule: entry for entry in _ENTRIES}
"""Entries by the name of the rule."""
BY_CODE: dict[str, Entry] = {entry.code: entry for entry in _ENTRIES}

FAMILIES = {
    "SBUF": "Capacity of SBUF",
    "PSUM": "PSUM",
    "PART": "Partitions",
    "ADDR": "Placement by address",
    "INIT": "Initialisation",
    "AP": "Access patterns",
    "TENS": "Tensors and views",
    "ARG": "Arguments and results",
    "OPND": "Operands",
    "OPER": "Operators and options",
    "ENG": "Engines, chips and versions",
    "MM": "Matrix products",
    "DMA": "DMA",
    "REG": "Registers",
    "CORE": "Two cores",
    "COLL": "Collectives",
    "ORD": "Order",
}


def page() -> str:
    """Return ``docs/nki_rules.md``."""
    lines = [
        "# Rules for kernels",
        "",
        "<!-- made by tools/nki_rules.py -->",
        "",
        "What the simulator and the verifier look at, one section per rule. [nki.md](nki.md) says how to run a kernel.",
        "",
        "    torch-neuronx nki check file.py",
        "",
        "runs the kernels of a file on its examples and prints what they break; `--json` prints JSON, `--shapes-only`",
        "follows shapes without computing, `--target trn3` takes another chip, `--kernel name` only one kernel. The",
        "exit code is 0 without findings, 1 with a finding, 2 where nothing could be run. A file gives its examples as",
        "`EXAMPLES`, a list of `(kernel, arguments)` or `(kernel, arguments, keywords)`, or as a function `example()`",
        "that returns such a list, or one such tuple:",
        "",
        "```python",
        "def example():",
        "    return add, (torch.randn(256, 512), torch.randn(256, 512))",
        "```",
        "",
        "`kernel[2]` and `nki.simulate(kernel, target=\"trn3\")` can stand for the kernel.",
        "",
        "Every simulated kernel is verified too. `TORCH_NEURONX_NKI_VERIFY`, or `nki.simulate(kernel, verify=...)`, is",
        "`strict` (the default: an error ends the kernel with `NkiValidationError`, a warning is an `NkiWarning`),",
        "`warn` (both are an `NkiWarning`) or `off`. Notes are in reports only. Rules found *before the instruction*",
        "hold in every mode: the simulator cannot go on without them. `NkiValidationError.rule` is the rule's name,",
        "`.limit`, `.actual` and `.source` say the rest. `torch_neuronx_nki.verifier.verifier.Verifier` is also an",
        "observer: `verifier.observe` takes the records of `torch_neuronx_nki.trace`.",
        "",
        "What the verifier does not know: the compiler's own placement and order of instructions, elements that data",
        "selects (they count as written, and are not asked for), and what a kernel would do with other arguments.",
        "Kernels of the first dialect are looked at one instruction at a time only.",
    ]  # fmt: skip
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}"]
        for entry in _ENTRIES:
            if entry.code.rstrip("0123456789") != family:
                continue
            when = {
                When.INSTRUCTION: "before the instruction",
                When.STREAM: "from earlier instructions",
                When.END: "at the end of the kernel",
            }[entry.when]
            lines += [
                "",
                f"### {entry.code} {entry.rule}",
                "",
                f"{entry.says} {entry.why}",
                "",
                f"*{entry.severity.capitalize()}*, found {when}. {entry.hint}",
            ]
    return "\n".join(lines) + "\n"
