"""Tensors of the kernel language: views over memory that torch holds. No view copies.

The address of an element is ``offset + sum(stride * index)``, in elements. Dimension 0 of a tensor on chip is the
partition; a view keeps it.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch

from torch_neuronx_nki.dtypes import Codec, Dtype, as_dtype, codec
from torch_neuronx_nki.engines import Buffer
from torch_neuronx_nki.errors import NkiTypeError, NkiValidationError
from torch_neuronx_nki.machine import Memory, maybe_core, violation


class DynamicSlice:
    """``nl.ds(start, size)``: ``size`` elements from ``start``, which may be a register."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: int) -> None:
        self.start = start
        self.size = size

    def __repr__(self) -> str:
        return f"nl.ds({self.start}, {self.size})"


@dataclass(frozen=True, slots=True)
class ScalarOffset:
    """Adds ``index * scale`` to a view's offset when an instruction reads or writes it."""

    index: Any
    """A register, or a tensor of one element."""
    scale: int
    limit: int


@dataclass(frozen=True, slots=True)
class RowOffsets:
    """Dimension 0 of a view is ``index[p] * scale`` in place of ``p * stride``: a gather or a scatter of rows."""

    index: "NkiTensor"
    scale: int


@dataclass(frozen=True, slots=True)
class ColumnOffsets:
    """The last dimension names groups of elements: element ``i`` of a group of partitions is at ``index[i]`` (gen4)."""

    index: "NkiTensor"
    group: int


Indirection = ScalarOffset | RowOffsets | ColumnOffsets


_MAX_VIEWS = 256
"""Views that a tensor, and a layout, remembers: kernels slice the same tiles again and again."""
_MAX_LAYOUTS = 50_000


class Layout:
    """What checks and executors of instructions may depend on: all of a view but its memory and where it is in there.

    Equal layouts are one object, so that they compare by identity.
    """

    __slots__ = (
        "buffer", "codec", "high", "indirection", "low", "partition", "physical", "run", "shape", "shift", "strides",
        "views",
    )  # fmt: skip

    def __init__(
        self,
        codec: Codec,
        buffer: Buffer,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        partition: int,
        indirection: type,
        row: int,
        pitch: int,
    ) -> None:
        self.codec = codec
        self.buffer = buffer
        self.shape = shape
        self.strides = strides
        self.partition = partition
        """First partition that it touches, within its allocation."""
        self.indirection = indirection
        self.physical = strides if pitch == row else (strides[0] // row * pitch, *strides[1:])
        """Strides in the memory of this machine."""
        self.shift = partition * (pitch - row)
        """What that memory adds to the offset."""
        self.low = self.high = 0
        """The elements of a partition that it touches are between these, from its first one: both included."""
        adjacent = 1
        for size, stride in zip(shape[:0:-1], strides[:0:-1], strict=True):
            if size != 1:
                if stride < 0:
                    self.low += stride * (size - 1)
                else:
                    self.high += stride * (size - 1)
                adjacent = adjacent * size if stride == adjacent else 0
        self.run = adjacent
        """Elements of a partition, if they are adjacent and in order; else 0."""
        self.views: dict[Any, tuple[Layout, int]] = {}
        """By index: the layout of the view that it takes, and how much it adds to the offset."""


_layouts: dict[Any, Layout] = {}


def _layout(
    memory: Memory, how: Codec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, indirection: type
) -> Layout:
    partition = row = pitch = 0
    if memory.buffer.on_chip:
        row, pitch = (memory.row, memory.pitch) if how is memory.codec else memory.in_elements_of(how)
        partition = offset // row
    key = (how, memory.buffer, shape, strides, partition, indirection, row, pitch)
    made = _layouts.get(key)
    if made is None:
        if len(_layouts) >= _MAX_LAYOUTS:
            _layouts.clear()
        made = _layouts[key] = Layout(*key)
    return made


class NkiTensor:
    """A strided view of a tensor in SBUF, PSUM or HBM."""

    __slots__ = (
        "_data",
        "_views",
        "codec",
        "indirection",
        "layout",
        "memory",
        "offset",
        "shape",
        "strides",
        "traced",
    )

    def __init__(
        self,
        memory: Memory,
        layout: Layout,
        offset: int,
        indirection: Indirection | None = None,
        traced: bool = False,
    ) -> None:
        self.memory = memory
        self.layout = layout
        self.shape = layout.shape
        self.strides = layout.strides
        self.offset = offset
        self.codec = layout.codec
        self.indirection = indirection
        self.traced = traced
        """Whether a register chose the elements."""
        self._data: torch.Tensor | None = None
        self._views: dict[Any, NkiTensor] | None = None

    # What it is -------------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return self.codec.dtype

    @property
    def buffer(self) -> Buffer:
        """The memory it is in."""
        return self.memory.buffer

    @property
    def name(self) -> str:
        """Name of the allocation."""
        return self.memory.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def on_chip(self) -> bool:
        """Whether it is in SBUF or PSUM."""
        return self.memory.buffer.on_chip

    @property
    def partition(self) -> int:
        """First partition that it touches, within its allocation."""
        return self.layout.partition

    @property
    def data(self) -> torch.Tensor:
        """The elements as a torch tensor of ``codec.carrier``: the memory itself, while the kernel keeps the tensor."""
        memory = self.memory
        if memory.notes is not None:
            memory.settle()
        data = self._data
        if data is None:
            if memory.unwritten is not None:
                memory.poison()
            data = self._located()
        return data

    @property
    def target(self) -> torch.Tensor:
        """As ``data``, for an instruction that writes all of it and reads nothing of it."""
        memory = self.memory
        if memory.notes is not None:
            memory.settle()
        if memory.unwritten is not None:
            memory.write(self.layout, self.offset, self.codec)
        data = self._data
        return self._located() if data is None else data

    @property
    def located(self) -> torch.Tensor:
        """As ``data``, but with what is there: neither settled nor poisoned."""
        data = self._data
        return self._located() if data is None else data

    def _located(self) -> torch.Tensor:
        memory, layout, held = self.memory, self.layout, self.memory.bytes
        if held is not None and self.indirection is None:
            found = held.located.get((layout, self.offset))
            if found is not None:
                self._data = found
                return found
        flat, base = memory.flat, memory.base
        if memory.codec.carrier is not layout.codec.carrier:
            flat = memory.flat_as(layout.codec.carrier)
            base = flat.storage_offset()
        assert flat is not None
        if self.indirection is None:
            start = base + self.offset + layout.shift
            data = self._data = torch.as_strided(flat, layout.shape, layout.physical, start)
            if held is not None:
                if len(held.located) >= _MAX_VIEWS:
                    held.located.clear()
                held.located[layout, self.offset] = data
            return data
        if type(self.indirection) is not ScalarOffset:
            raise violation(
                "dma-indirect",
                "A view with one index per partition is used where a plain one is expected",
                limit="dma_copy, dma_compute and dma_transpose",
                actual=type(self.indirection).__name__,
                advice="Gather into a tile of SBUF with nisa.dma_copy first.",
            )
        moved = self.offset + self._resolved()
        if memory.buffer.on_chip:
            row, pitch = memory.in_elements_of(self.codec)
            self._within_partition(moved % row, self.strides, self.shape, row)
            moved += moved // row * (pitch - row)
        return torch.as_strided(flat, layout.shape, layout.physical, base + moved)

    def _resolved(self) -> int:
        offset = self.indirection
        assert isinstance(offset, ScalarOffset)
        index = int(scalar_value(offset.index))
        if not 0 <= index < offset.limit:
            raise violation(
                "dma-indirect",
                f"An index is {index}, but the dimension has {offset.limit} elements",
                limit=offset.limit,
                actual=index,
                advice="Check what the register or the index tensor holds.",
            )
        return index * offset.scale

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        text = f"NkiTensor({self.buffer.name}{name} {self.dtype} {list(self.shape)}"
        if self.memory.flat is not None and type(self.indirection) not in (RowOffsets, ColumnOffsets):
            return f"{text}\n{self.to_torch()})"
        return text + ")"

    def to_torch(self) -> torch.Tensor:
        """Return the values as a new float32 tensor, or the elements themselves for integers and packed types."""
        if self.codec.dtype.kind == "float":
            return self.codec.load(self.data).clone()
        return self.data.clone()

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NkiTypeError("A tensor of a kernel cannot be iterated. Index it in a loop over nl.affine_range.")

    def __bool__(self) -> bool:
        raise NkiTypeError(
            "A tensor of a kernel has no truth value. Load one element with nisa.register_load, or compute a mask."
        )

    # Views ------------------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> "NkiTensor":
        """Take ints, slices with a step, ``nl.ds``, ``...``.

        Dimension 0 of a tensor on chip stays, and so does a second one. Raises :class:`NkiValidationError` out of
        bounds.
        """
        if type(index) is not tuple:
            index = (index,)
        key = tuple(
            [
                (item.start, item.stop, item.step)
                if type(item) is slice
                else (item.start, item.size)
                if type(item) is DynamicSlice
                else item
                for item in index
            ]
        )
        views = self._views
        if views is None:
            views = self._views = {}
        else:
            found = views.get(key)
            if found is not None:
                return found
        known = self.layout.views.get(key)
        if known is not None:
            layout, distance = known
            view = NkiTensor(self.memory, layout, self.offset + distance, self.indirection, self.traced)
        else:
            view = self._indexed(index)
            if view.traced:
                return view
            layouts = self.layout.views
            if len(layouts) >= _MAX_VIEWS:
                layouts.clear()
            layouts[key] = (view.layout, view.offset - self.offset)
        if not self.traced:
            if len(views) >= _MAX_VIEWS:
                views.clear()
            views[key] = view
        return view

    def _indexed(self, index: tuple[Any, ...]) -> "NkiTensor":
        shape, strides, offset = self.shape, self.strides, self.offset
        rank = len(shape)
        if len(index) != rank or Ellipsis in index:
            index = _spelled_out(index, rank)
        on_chip = self.memory.buffer.on_chip
        sizes: list[int] = []
        steps: list[int] = []
        traced = self.traced
        for dim, item in enumerate(index):
            size, stride = shape[dim], strides[dim]
            kind = type(item)
            if kind is slice:
                start, stop, step = item.start, item.stop, item.step
                if start is None:
                    start = 0
                elif type(start) is not int:
                    traced |= not isinstance(start, int)
                    start = _integer(start, dim)
                if stop is None:
                    stop = size
                elif type(stop) is not int:
                    stop = _integer(stop, dim)
                if step is None:
                    step = 1
                elif type(step) is not int:
                    step = _integer(step, dim)
                if start < 0:
                    start += size
                if stop < 0:
                    stop += size
                if not 0 <= start < stop <= size or step < 1:
                    raise self._outside(dim, f"{start}:{stop}:{step}")
                offset += start * stride
                sizes.append((stop - start + step - 1) // step)
                steps.append(stride * step)
            elif kind is int:
                if item < 0:
                    item += size
                if not 0 <= item < size:
                    raise self._outside(dim, item)
                offset += item * stride
                if dim == 0 and on_chip:
                    sizes.append(1)
                    steps.append(stride)
            elif kind is DynamicSlice:
                start = item.start
                if type(start) is not int:
                    traced |= not isinstance(start, int)
                    start = _integer(start, dim)
                count = _integer(item.size, dim)
                if start < 0 or count < 1 or start + count > size:
                    raise self._outside(dim, f"nl.ds({start}, {count})")
                offset += start * stride
                sizes.append(count)
                steps.append(stride)
            else:
                number = _integer(item, dim)
                traced = True
                if not 0 <= number < size:
                    raise self._outside(dim, number)
                offset += number * stride
                if dim == 0 and on_chip:
                    sizes.append(1)
                    steps.append(stride)
        if on_chip and len(sizes) == 1:
            sizes.append(1)
            steps.append(1)
        return view_of(self.memory, tuple(sizes), tuple(steps), offset, self.codec, self.indirection, traced)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NkiTypeError(
            "A tensor of a kernel is not assigned to. Write it with an instruction, such as nisa.dma_copy."
        )

    def _outside(self, dim: int, index: Any) -> NkiValidationError:
        return violation(
            "index-bounds",
            f"Index {index} is outside of dimension {dim} of a tensor of shape {self.shape}",
            limit=self.shape[dim],
            actual=index,
            advice="Cut the last tile of an uneven split to what is left.",
        )

    def _view(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int | None = None,
        how: Codec | None = None,
        indirection: Indirection | None = None,
    ) -> "NkiTensor":
        return view_of(
            self.memory,
            tuple(shape),
            tuple(strides),
            self.offset if offset is None else offset,
            how or self.codec,
            indirection or self.indirection,
            self.traced,
        )

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: "NkiTensor | None" = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> "NkiTensor":
        """Take the elements of an access pattern ``[[stride, count], ...]`` over the whole allocation, from ``offset``.

        Earlier views do not compose, except that ``indirect_dim`` counts dimensions of this one. ``scalar_offset`` (a
        register or one element of SBUF) adds its value times the elements below ``indirect_dim``; ``vector_offset``,
        one element per partition, replaces the index of dimension 0 of a tensor in HBM. ``dtype`` reinterprets. On
        chip, the first stride is the elements per partition.
        """
        memory = self.memory
        if not memory.is_dense:
            raise self._bad_view("an access pattern walks adjacent elements, and the argument is a slice of a tensor")
        target = self.codec if dtype is None else self._codec_for(dtype)
        item = target.dtype.itemsize
        total = memory.row * (memory.shape[0] if memory.shape else 1) * memory.codec.dtype.itemsize // item
        try:
            strides = tuple(operator.index(stride) for stride, _ in pattern)
            shape = tuple(operator.index(count) for _, count in pattern)
        except (TypeError, ValueError):
            raise self._bad_view(f"the pattern {pattern!r} is no list of [stride, count] pairs") from None
        start = 0 if offset is None else operator.index(offset)
        if not shape or any(count < 1 for count in shape):
            raise self._bad_view(f"the pattern {pattern!r} counts no elements")
        row, _ = memory.in_elements_of(target)
        if memory.buffer.on_chip and shape[0] > 1 and strides[0] % row:
            raise self._bad_view(
                f"the first stride of a tensor on chip is {strides[0]}, but a partition has {row} elements"
            )
        below = 1
        base = self.shape if self.size == memory.row * memory.shape[0] else memory.shape
        for size in base[indirect_dim + 1 :]:
            below *= size
        indirection: Indirection | None = None
        if scalar_offset is not None and vector_offset is not None:
            raise self._bad_view("scalar_offset and vector_offset exclude each other")
        if scalar_offset is not None:
            scale = below * memory.codec.dtype.itemsize // item
            indirection = ScalarOffset(scalar_offset, scale, self._rows(start, shape, strides, scale, total))
        elif vector_offset is not None:
            if indirect_dim != 0 or memory.buffer.on_chip:
                raise self._bad_view("vector_offset takes dimension 0 of a tensor in HBM")
            indirection = RowOffsets(vector_offset, below * memory.codec.dtype.itemsize // item)
        first = 1 if isinstance(indirection, RowOffsets) else 0
        low = start + sum(s * (n - 1) for s, n in zip(strides[first:], shape[first:], strict=True) if s < 0)
        high = start + sum(s * (n - 1) for s, n in zip(strides[first:], shape[first:], strict=True) if s > 0)
        if low < 0 or high >= total:
            raise violation(
                "index-bounds",
                f"The access pattern {[list(pair) for pair in pattern]} from {start} reaches elements {low} to {high} "
                f"of a tensor of {total}",
                limit=total,
                actual=high,
                advice="Strides and offset count elements of the whole allocation.",
            )
        if memory.buffer.on_chip:
            self._within_partition(start % row, strides, shape, row)
        return view_of(memory, shape, strides, start, target, indirection, self.traced)

    @staticmethod
    def _within_partition(first: int, strides: Sequence[int], shape: Sequence[int], row: int) -> None:
        reach = [stride * (count - 1) for stride, count in zip(strides[1:], shape[1:], strict=True)]
        low, high = first + sum(min(part, 0) for part in reach), first + sum(max(part, 0) for part in reach)
        if low < 0 or high >= row:
            raise violation(
                "index-bounds",
                f"An access pattern reaches elements {low} to {high} of a partition of {row}",
                limit=row,
                actual=high if high >= row else low,
                advice="The first stride moves over partitions, the others stay within one.",
            )

    @staticmethod
    def _rows(start: int, shape: Sequence[int], strides: Sequence[int], scale: int, total: int) -> int:
        reach = start + sum(stride * (count - 1) for stride, count in zip(strides, shape, strict=True) if stride > 0)
        return max((total - 1 - reach) // max(scale, 1) + 1, 0)

    def reshape(self, shape: Sequence[int]) -> "NkiTensor":
        """View the elements in another shape. On chip, dimension 0 stays."""
        sizes = [operator.index(size) for size in ((shape,) if isinstance(shape, int) else shape)]
        if sizes.count(-1) == 1:
            known = 1
            for size in sizes:
                known *= size if size != -1 else 1
            sizes[sizes.index(-1)] = self.size // max(known, 1)
        count = 1
        for size in sizes:
            count *= size
        if count != self.size:
            raise self._bad_view(f"{self.size} elements do not reshape to {tuple(sizes)}")
        if self.on_chip and sizes[0] != self.shape[0]:
            raise self._bad_view(f"dimension 0 on chip is the partition and stays {self.shape[0]}, not {sizes[0]}")
        strides = _strides_of_reshape(self.shape, self.strides, sizes)
        if strides is None:
            raise self._bad_view(f"strides {self.strides} of shape {self.shape} do not become shape {tuple(sizes)}")
        return self._view(sizes, strides)

    def slice(self, dim: int, start: Any, end: Any, step: int = 1) -> "NkiTensor":
        """Take ``start`` to ``end`` (not included) of one dimension."""
        dim = self._dim(dim)
        return self[(*[slice(None)] * dim, slice(start, end, step), *[slice(None)] * (len(self.shape) - dim - 1))]

    def select(self, dim: int, index: Any) -> "NkiTensor":
        """Take one index of a dimension, which goes. A tensor of one element selects when the view is used."""
        dim = self._dim(dim)
        if isinstance(index, NkiTensor):
            size, stride = self.shape[dim], self.strides[dim]
            sizes, strides = [*self.shape], [*self.strides]
            del sizes[dim], strides[dim]
            return self._view(sizes, strides, indirection=ScalarOffset(index, stride, size))
        return self[(*[slice(None)] * dim, index, *[slice(None)] * (len(self.shape) - dim - 1))]

    def vector_select(self, dim: int, offsets: "NkiTensor") -> "NkiTensor":
        """Take the rows that ``offsets`` names, one per partition. For tensors in HBM and dimension 0."""
        if dim != 0 or self.on_chip:
            raise self._bad_view("vector_select takes dimension 0 of a tensor in HBM")
        return self._view(
            (offsets.shape[0], *self.shape[1:]), self.strides, indirection=RowOffsets(offsets, self.strides[0])
        )

    def permute(self, dims: Sequence[int]) -> "NkiTensor":
        """Reorder the dimensions. On chip, dimension 0 stays."""
        order = [self._dim(dim) for dim in dims]
        if sorted(order) != list(range(len(self.shape))):
            raise self._bad_view(f"{tuple(dims)} is no order of {len(self.shape)} dimensions")
        if self.on_chip and order[0] != 0:
            raise self._bad_view("dimension 0 on chip is the partition and stays first")
        return self._view([self.shape[dim] for dim in order], [self.strides[dim] for dim in order])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> "NkiTensor":
        """Split one dimension; one size may be -1."""
        dim = self._dim(dim)
        if self.on_chip and dim == 0:
            raise self._bad_view("dimension 0 on chip is the partition and is not split")
        sizes = list(shape)
        if -1 in sizes:
            known = 1
            for size in sizes:
                known *= size if size != -1 else 1
            sizes[sizes.index(-1)] = self.shape[dim] // known
        count = 1
        for size in sizes:
            count *= size
        if count != self.shape[dim]:
            raise self._bad_view(f"dimension {dim} of size {self.shape[dim]} does not split into {tuple(shape)}")
        strides: list[int] = []
        below = self.strides[dim]
        for size in reversed(sizes):
            strides.insert(0, below)
            below *= size
        return self._view(
            (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *strides, *self.strides[dim + 1 :]),
        )

    def expand_dim(self, dim: int) -> "NkiTensor":
        """Put a dimension of size 1 before ``dim``."""
        dim = dim if dim >= 0 else dim + len(self.shape) + 1
        if (self.on_chip and dim == 0) or not 0 <= dim <= len(self.shape):
            raise self._bad_view(f"a dimension cannot be put at {dim}")
        return self._view((*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], 1, *self.strides[dim:]))

    def squeeze_dim(self, dim: int) -> "NkiTensor":
        """Take out a dimension of size 1."""
        dim = self._dim(dim)
        if self.shape[dim] != 1 or (self.on_chip and dim == 0):
            raise self._bad_view(f"dimension {dim} of size {self.shape[dim]} cannot go")
        return self._view((*self.shape[:dim], *self.shape[dim + 1 :]), (*self.strides[:dim], *self.strides[dim + 1 :]))

    def broadcast(self, dim: int, size: int) -> "NkiTensor":
        """Repeat a dimension of size 1, with stride 0."""
        dim = self._dim(dim)
        if self.shape[dim] != 1 or (self.on_chip and dim == 0):
            raise self._bad_view(f"dimension {dim} of size {self.shape[dim]} cannot be repeated")
        return self._view(
            (*self.shape[:dim], size, *self.shape[dim + 1 :]), (*self.strides[:dim], 0, *self.strides[dim + 1 :])
        )

    def broadcast_to(self, shape: Sequence[int]) -> "NkiTensor":
        """Repeat every dimension of size 1 that is larger in ``shape``."""
        result = self
        for dim, size in enumerate(shape):
            if result.shape[dim] != size:
                result = result.broadcast(dim, size)
        return result

    def flatten_dims(self, start: int, end: int) -> "NkiTensor":
        """Merge dimensions ``start`` to ``end``, both included."""
        start, end = self._dim(start), self._dim(end)
        if (self.on_chip and start == 0) or end < start:
            raise self._bad_view(f"dimensions {start} to {end} cannot be merged")
        merged = 1
        for size in self.shape[start : end + 1]:
            merged *= size
        strides = _strides_of_reshape(self.shape[start : end + 1], self.strides[start : end + 1], [merged])
        if strides is None:
            raise self._bad_view(f"dimensions {start} to {end} are not adjacent in memory")
        return self._view(
            (*self.shape[:start], merged, *self.shape[end + 1 :]),
            (*self.strides[:start], *strides, *self.strides[end + 1 :]),
        )

    def rearrange(
        self, source: Sequence[Any], target: Sequence[Any], fixed_sizes: dict[str, int] | None = None
    ) -> "NkiTensor":
        """Split, reorder and merge dimensions by name: ``(("a", "b"), "c")`` to ``("a", ("c", "b"))``."""
        sizes = dict(fixed_sizes or {})
        shape: list[int] = []
        strides: list[int] = []
        names: list[str] = []
        if len(source) != len(self.shape):
            raise self._bad_view(f"{source} names {len(source)} dimensions of {len(self.shape)}")
        for dim, entry in enumerate(source):
            parts = [entry] if isinstance(entry, str) else list(entry)
            known = 1
            for part in parts:
                known *= sizes.get(part, 1)
            for part in parts:
                sizes.setdefault(part, self.shape[dim] // known)
            split = self if len(parts) == 1 else self.reshape_dim(dim, [sizes[part] for part in parts])
            shape += split.shape[dim : dim + len(parts)]
            strides += split.strides[dim : dim + len(parts)]
            names += parts
        flat: list[str] = []
        for entry in target:
            flat += [entry] if isinstance(entry, str) else list(entry)
        if sorted(flat) != sorted(names):
            raise self._bad_view(f"{target} does not name the dimensions of {source}")
        order = [names.index(part) for part in flat]
        if self.on_chip and (order[0] != 0 or (not isinstance(target[0], str) and len(target[0]) > 1)):
            raise self._bad_view("dimension 0 on chip is the partition and stays as it is")
        result = self._view([shape[dim] for dim in order], [strides[dim] for dim in order])
        for position, entry in enumerate(target):
            if not isinstance(entry, str) and len(entry) > 1:
                merged = 1
                for size in result.shape[position : position + len(entry)]:
                    merged *= size
                new = _strides_of_reshape(
                    result.shape[position : position + len(entry)],
                    result.strides[position : position + len(entry)],
                    [merged],
                )
                if new is None:
                    raise self._bad_view(f"{entry} is not adjacent in memory")
                result = result._view(
                    (*result.shape[:position], merged, *result.shape[position + len(entry) :]),
                    (*result.strides[:position], *new, *result.strides[position + len(entry) :]),
                )
        return result

    def view(self, dtype: Any) -> "NkiTensor":
        """Read the bytes as another type; the last dimension changes with the size of the elements."""
        how = self._codec_for(dtype)
        old, new = self.dtype.itemsize, how.dtype.itemsize
        if old == new:
            return self._view(self.shape, self.strides, how=how)
        if self.strides[-1] != 1 or (
            new > old
            and (self.shape[-1] * old % new or self.offset * old % new or any(s * old % new for s in self.strides[:-1]))
        ):
            raise violation(
                "view-dtype",
                f"The last dimension of {self.dtype} {self.shape} cannot be read as {how.dtype}",
                limit=f"a multiple of {max(new // old, 1)} adjacent elements",
                actual=self.shape[-1],
                advice="Make the last dimension contiguous and a multiple of the ratio of the sizes.",
            )
        return self._view(
            (*self.shape[:-1], self.shape[-1] * old // new),
            (*(stride * old // new for stride in self.strides[:-1]), 1),
            self.offset * old // new,
            how,
        )

    reinterpret_cast = view

    def _codec_for(self, dtype: Any) -> Codec:
        made = as_dtype(dtype)
        if made is None:
            raise unknown_dtype(dtype)
        if made is self.codec.dtype:
            return self.codec
        if self.codec.carrier.itemsize != self.codec.dtype.itemsize:
            raise violation(
                "view-dtype",
                f"{self.dtype} is held as float32, so that its bytes are not there to be read as {made}",
                limit="NKI_PRECISE_FP=1",
                actual="NKI_PRECISE_FP=0",
                advice="Simulate with NKI_PRECISE_FP=1.",
            )
        core = maybe_core()
        return codec(made, saturate=core is not None and core.options.saturate_fp8)

    def indirect(self, index: "NkiTensor", num_elem: int | None = None) -> "NkiTensor":
        """Gather or scatter along the free dimension: offset ``i`` is ``index[i % group, i // group]`` (gen4).

        The group is 16 partitions.
        """
        core = maybe_core()
        if core is not None and core.limits.generation < 4:
            raise violation(
                "generation",
                "A tensor is indexed with .indirect()",
                limit="gen4",
                actual=core.limits.generation.name,
                advice="Use nisa.nc_n_gather or nisa.local_gather on this chip.",
            )
        count = num_elem if num_elem is not None else index.shape[1] * 16
        return self._view((self.shape[0], count), (self.strides[0], 1), indirection=ColumnOffsets(index, 16))

    # Layout -----------------------------------------------------------------------------------------------------------

    def is_contiguous(self) -> bool:
        """Whether the elements are adjacent; on chip, within each partition."""
        expected = 1
        for dim in range(len(self.shape) - 1, 0 if self.on_chip else -1, -1):
            if self.shape[dim] != 1 and self.strides[dim] != expected:
                return False
            expected *= self.shape[dim]
        return True

    def get_pattern(self) -> list[list[int]]:
        """Return ``[[stride, count], ...]``."""
        return [[stride, size] for stride, size in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        """Whether data chooses the elements."""
        return self.indirection is not None

    def _dim(self, dim: int) -> int:
        rank = len(self.shape)
        if not -rank <= dim < rank:
            raise self._bad_view(f"there is no dimension {dim} in {rank}")
        return dim % rank

    def _bad_view(self, why: str) -> NkiValidationError:
        return violation(
            "view",
            f"A view of {self.dtype} {self.shape} cannot be made: {why}",
            limit=self.shape,
            actual=why,
            advice="See NkiTensor for what each view keeps.",
        )


def whole(memory: Memory, strides: tuple[int, ...] | None = None) -> NkiTensor:
    """Return the view of all of ``memory``."""
    room = memory.room
    if room is not None and room.layout is not None:
        return NkiTensor(memory, room.layout, 0)
    made = view_of(memory, memory.shape, strides or contiguous_strides(memory.shape), 0, memory.codec)
    if room is not None:
        room.layout = made.layout
    return made


def view_of(
    memory: Memory,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    how: Codec,
    indirection: Indirection | None = None,
    traced: bool = False,
) -> NkiTensor:
    """Return the view of ``memory`` with these strides and offset, in elements of ``how``."""
    return NkiTensor(
        memory, _layout(memory, how, shape, strides, offset, type(indirection)), offset, indirection, traced
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of adjacent elements."""
    strides, below = [], 1
    for size in reversed(shape):
        strides.append(below)
        below *= size
    return tuple(reversed(strides))


def scalar_value(index: Any) -> int | float:
    """Return what a register, a number or a tensor of one element holds; 0 where only shapes are followed."""
    if isinstance(index, NkiTensor):
        if index.size != 1:
            raise violation(
                "index-type",
                f"An index is a tensor of shape {index.shape}",
                limit=1,
                actual=index.size,
                advice="Use one element.",
            )
        return index.codec.load(index.data).item() if index.memory.flat is not None else 0
    return operator.index(index)


def unknown_dtype(dtype: Any) -> NkiValidationError:
    """Build the error for a value that names no type."""
    return violation(
        "dtype-name",
        f"{dtype!r} is no type of the language",
        limit="the types of nki.language",
        actual=dtype,
        advice="Use one such as nl.float32 or nl.bfloat16.",
    )


def _integer(value: Any, dim: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise violation(
            "index-type",
            f"The index of dimension {dim} is {value!r}",
            limit="integers, slices, nl.ds, ..., registers",
            actual=type(value).__name__,
            advice="Load a tensor's element into a register, or use select.",
        ) from None


def _spelled_out(index: tuple[Any, ...], rank: int) -> tuple[Any, ...]:
    at = next((position for position, item in enumerate(index) if isinstance(item, EllipsisType)), None)
    if at is not None:
        missing = rank - len(index) + 1
        index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    else:
        index = (*index, *[slice(None)] * (rank - len(index)))
    if len(index) != rank:
        raise violation(
            "index-bounds",
            f"{len(index)} indices for {rank} dimensions",
            limit=rank,
            actual=len(index),
            advice="Give one index per dimension.",
        )
    return index


def _strides_of_reshape(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> list[int] | None:
    """Return the strides with which ``target`` walks the same elements in the same order, or None if none do."""
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result: list[int] = [1] * len(target)
    new = [dim for dim, size in enumerate(target) if size != 1]
    o = n = 0
    while o < len(old) and n < len(new):
        old_end, new_end = o + 1, n + 1
        old_size, new_size = old[o][0], target[new[n]]
        while old_size != new_size:
            if old_size < new_size:
                old_size *= old[old_end][0]
                old_end += 1
            else:
                new_size *= target[new[new_end]]
                new_end += 1
        for i in range(o, old_end - 1):
            if old[i][1] != old[i + 1][0] * old[i + 1][1]:
                return None
        below = old[old_end - 1][1]
        for i in range(new_end - 1, n - 1, -1):
            result[new[i]] = below
            below *= target[new[i]]
        o, n = old_end, new_end
    return result
