"""Loops and the launch: ranges, structured loops, which core runs, the constants of its memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from torch_neuronx_nki import targets
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiTypeError
from torch_neuronx_nki.machine import current_core, maybe_core, violation
from torch_neuronx_nki.options import options
from torch_neuronx_nki.registers import NkiScalar
from torch_neuronx_nki.tensors import DynamicSlice, NkiTensor


def affine_range(start: Any, stop: Any = None, step: Any = 1) -> range:
    """Loop whose iterations do not depend on one another."""
    return range(int(start)) if stop is None else range(int(start), int(stop), int(step))


def sequential_range(start: Any, stop: Any = None, step: Any = 1) -> range:
    """Loop whose iterations may depend on one another."""
    return affine_range(start, stop, step)


def static_range(start: Any, stop: Any = None, step: Any = 1) -> range:
    """Loop that is unrolled."""
    return affine_range(start, stop, step)


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> Iterator[NkiScalar]:
    """Loop on the device, with the index in a register. Gone in version 0.7: use :func:`fori_loop`."""
    core = current_core()
    if core.options.language >= (0, 7):
        raise violation(
            "language",
            "nl.dynamic_range is gone in version 0.7",
            limit=(0, 6),
            actual=core.options.language,
            advice="Use nl.fori_loop.",
        )
    for index in affine_range(start, stop, step):
        yield NkiScalar(index)


def fori_loop(lower: Any, upper: Any, body: Callable[[NkiScalar], Any], step: int = 1) -> None:
    """Call ``body`` on the device with a register that counts from ``lower`` to ``upper``, not included."""
    _since_06("nl.fori_loop")
    for index in range(int(lower), int(upper), step):
        body(NkiScalar(index))


def while_loop(init: Any, body: Callable[[Any], Any]) -> None:
    """Call ``body`` while its condition, a register, is not 0: first ``init``, then what ``body`` returns."""
    _since_06("nl.while_loop")
    condition = init
    while bool(condition):
        condition = body(condition)


def _since_06(name: str) -> None:
    core = current_core()
    if core.options.language < (0, 6):
        raise violation(
            "language",
            f"{name} is not in this version",
            limit=(0, 6),
            actual=core.options.language,
            advice="Use version 0.6 or later.",
        )


def ds(start: Any, size: int) -> DynamicSlice:
    """``size`` elements from ``start``, which may be a register."""
    return DynamicSlice(start, size)


def program_id(axis: int = 0) -> int:
    """Return which core of the launch this is."""
    return current_core().index


def num_programs(axes: Any = 0) -> int:
    """Return how many cores run the kernel."""
    return current_core().launch.lnc


def program_ndim() -> int:
    """Return the number of dimensions of the launch: 1 where several cores run, else 0."""
    return 1 if current_core().launch.lnc > 1 else 0


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the order of what is executed inside. The simulator always does; observers are told."""
    core = current_core()
    before, core.chain = core.chain, -1
    try:
        yield
    finally:
        core.chain = before


class TileSize:
    """Sizes of tiles and memories on the chip that runs, or that is chosen by the environment outside of a kernel."""

    pmax = targets.PARTITIONS
    """Partitions."""
    psum_fmax = targets.PSUM_BANK_BYTES // 4
    """float32 elements in a bank of PSUM, per partition."""
    psum_bank_fmax = psum_fmax
    psum_bank_fmax_bytes = targets.PSUM_BANK_BYTES
    psum_num_banks = targets.PSUM_BANKS
    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    sbuf_min_align = 1
    psum_min_align = 4

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of SBUF per partition."""
        core = maybe_core()
        return (core.limits if core is not None else options().limits).sbuf_bytes

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF."""
        return self.sbuf_fmax_bytes * self.pmax

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of SBUF per partition."""
        return self.sbuf_fmax_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of SBUF per partition; the old name."""
        return self.sbuf_fmax_bytes


tile_size = TileSize()


def is_sbuf(buffer: Any) -> bool:
    """Whether a buffer, or a tensor's, is SBUF."""
    return _of(buffer) is Buffer.sbuf


def is_psum(buffer: Any) -> bool:
    """Whether a buffer, or a tensor's, is PSUM."""
    return _of(buffer) is Buffer.psum


def is_on_chip(buffer: Any) -> bool:
    """Whether a buffer, or a tensor's, is SBUF or PSUM."""
    return _of(buffer).on_chip


def is_hbm(buffer: Any) -> bool:
    """Whether a buffer, or a tensor's, is in HBM."""
    return not _of(buffer).on_chip


def _of(buffer: Any) -> Buffer:
    return buffer.buffer if isinstance(buffer, NkiTensor) else Buffer(buffer)


class NKIObject:
    """Base of classes whose objects kernels carry.

    Without a constructor of its own, a class takes its annotated names, in order or as keywords; class attributes are
    defaults. A plain attribute counts as annotated, for ``dataclasses.dataclass`` too: the vendor's front end, which
    reads the source, makes no difference.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = dict(vars(cls).get("__annotations__", {}))
        for name, value in vars(cls).items():
            plain = value is None or isinstance(value, bool | int | float | str | tuple | Enum)
            if plain and not name.startswith("_") and name not in own:
                own[name] = Any
        cls.__annotations__ = own

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names: dict[str, None] = {}
        for kind in reversed(type(self).__mro__):
            names.update(dict.fromkeys(vars(kind).get("__annotations__", ())))
        if len(args) > len(names):
            raise NkiTypeError(f"{type(self).__name__} takes {len(names)} values, got {len(args)}.")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise NkiTypeError(f"{type(self).__name__} takes {', '.join(names)}, each once, not {name!r}.")
            given[name] = value
        missing = [name for name in names if name not in given and not hasattr(type(self), name)]
        if missing:
            raise NkiTypeError(f"{type(self).__name__} needs {', '.join(missing)}.")
        for name, value in given.items():
            setattr(self, name, value)
