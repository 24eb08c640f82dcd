"""Instructions in which the two physical cores of a logical one meet."""

from typing import Any

from torch_neuronx_nki.checks import SBUF, Checker, free
from torch_neuronx_nki.engines import Buffer, DgeMode, DmaEngine, Engine
from torch_neuronx_nki.errors import NkiLaunchError
from torch_neuronx_nki.issue import OPCODES, Opcode, operand_record, tell_meeting
from torch_neuronx_nki.machine import Core, current_core
from torch_neuronx_nki.tensors import NkiTensor
from torch_neuronx_nki.trace import Access, DmaTransfer


def _described(name: str, operands: tuple[tuple[str, Access], ...], parameters: tuple[str, ...]) -> Opcode:
    made = Opcode(name, operands, parameters, _never_prepared, True)
    OPCODES[name] = made
    return made


def _never_prepared(*_: Any) -> Any:
    raise NotImplementedError("Cores meet in the function of the instruction.")


_core_barrier = _described("core_barrier", (("data", Access.UPDATE),), ("cores", "engine"))
_sendrecv = _described(
    "sendrecv",
    (("src", Access.READ), ("dst", Access.WRITE)),
    ("send_to_rank", "recv_from_rank", "pipe_id", "dma_engine"),
)


def _meet(core: Core, what: str, value: Any) -> dict[int, Any]:
    if core.meet is None:
        raise NkiLaunchError(
            f"nisa.{what} waits for another core, but one core runs the kernel. Launch it on two: kernel[2](...)."
        )
    answer: dict[int, Any] = core.meet(what, value)
    return answer


def core_barrier(data: NkiTensor, cores: Any, engine: Engine = Engine.gpsimd, name: str | None = None) -> Any:
    """Wait until both cores are here, so that what one has written to ``data`` in shared HBM is there for the other.

    From gen3. Where one core runs the kernel, there is nothing to wait for.
    """
    core = current_core()
    check = Checker(core, "core_barrier")
    check.generation_from(3, "core_barrier")
    check.buffer("data", check.tensor("data", data), frozenset({Buffer.shared_hbm}))
    named = tuple(int(index) for index in cores)
    running = tuple(range(core.launch.lnc))
    if core.launch.lnc > 1 and tuple(sorted(named)) != running:
        check.fail(
            "cores",
            f"cores is {named}",
            limit=running,
            actual=named,
            advice=f"Name all cores of the launch: {running}.",
        )
    if core.meet is not None:
        _meet(core, "core_barrier", None)
    number = core.barriers
    core.barriers += 1
    return tell_meeting(core, _core_barrier, (data,), (named, engine), name, Engine(engine), running, number)


_GPSIMD_BYTES = {4: 1024, 2: 512, 1: 256}


def sendrecv(
    src: NkiTensor,
    dst: NkiTensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: DmaEngine = DmaEngine.dma,
    name: str | None = None,
) -> Any:
    """Send ``src`` to one core and receive ``dst`` from one; both in SBUF, of one shape and type."""
    core = current_core()
    check = Checker(core, "sendrecv")
    for label, operand in (("src", src), ("dst", dst)):
        check.buffer(label, check.tensor(label, operand), SBUF)
    check.shape("dst", dst, src.shape)
    check.same_dtype(src=src, dst=dst)
    count = core.launch.lnc
    for label, rank in (("send_to_rank", send_to_rank), ("recv_from_rank", recv_from_rank)):
        if not 0 <= rank < count:
            check.fail(
                "cores",
                f"{label} is {rank} of {count} cores",
                limit=tuple(range(count)),
                actual=rank,
                advice="Launch the kernel on two cores, and name one of them.",
            )
    if DmaEngine(dma_engine) is DmaEngine.gpsimd_dma:
        limit = _GPSIMD_BYTES[src.dtype.itemsize]
        nbytes = free(src) * src.dtype.itemsize
        if nbytes > limit:
            check.fail(
                "free-limit",
                f"gpsimd_dma is asked to send {nbytes} bytes per partition",
                limit=limit,
                actual=nbytes,
                advice="Use dma_engine.dma, or send smaller tiles.",
            )
    if core.meet is not None:
        sent = src.data.clone() if core.computes else None
        arrived = _meet(core, f"sendrecv (pipe {pipe_id})", (send_to_rank, sent, src.shape, src.dtype))
        to, values, shape, dtype = arrived[recv_from_rank]
        if to != core.index or shape != dst.shape or dtype != dst.dtype:
            check.fail(
                "cores",
                f"core {core.index} receives {dst.dtype} {dst.shape} from core {recv_from_rank}, which sends {dtype} "
                f"{shape} to core {to}",
                limit=(dst.dtype, dst.shape, core.index),
                actual=(dtype, shape, to),
                advice="Let both sides name one another and equal tiles.",
            )
        if core.computes:
            dst.data.copy_(values)
    elif core.computes and dst is not src:
        dst.data.copy_(src.data.clone())
    number = core.barriers
    core.barriers += 1
    transfer = None
    if core.observed:
        record = operand_record("dst", Access.WRITE, dst)
        run = min(record.run_bytes, operand_record("src", Access.READ, src).run_bytes)
        transfer = DmaTransfer(
            nbytes=record.nbytes,
            descriptors=-(-record.nbytes // run),
            descriptor_bytes=run,
            mode=DgeMode.unknown,
            indirect=False,
            transposes=False,
            computes=False,
        )
    parameters = (send_to_rank, recv_from_rank, pipe_id, dma_engine)
    met = tuple(sorted({core.index, send_to_rank, recv_from_rank}))
    return tell_meeting(core, _sendrecv, (src, dst), parameters, name, Engine.dma, met, number, transfer)
