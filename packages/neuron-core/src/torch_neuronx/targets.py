"""What a chip is: cores, memory, dtypes and rates, and which of its cores a process sees.

A target is data. ``trn2`` and ``trn3`` are here; a plugin adds others through ``torch_neuronx_register_targets``.
The figures are those of AWS's public architecture pages for Trainium2 and Trainium3. Dtypes are named as torch
names them, without ``torch.``, so that this module needs no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from torch_neuronx import config
from torch_neuronx.errors import ConfigurationError

KIB, MIB, GIB = 2**10, 2**20, 2**30

DEFAULT_TARGET = "trn2"
"""What the emulator emulates where nothing says otherwise."""


class DtypeSupport(StrEnum):
    """What a target does with a dtype."""

    NATIVE = "native"
    NARROWED = "narrowed"
    """Tensors keep the dtype; the chip computes in a narrower one."""
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of chip. Sizes are bytes, rates are per physical core unless the name says ``chip``."""

    name: str
    instance_names: tuple[str, ...]
    """Names of the instance families that carry the chip."""
    cores_per_chip: int
    """Physical cores."""
    default_lnc: int
    """Physical cores per logical core where ``NEURON_LOGICAL_NC_CONFIG`` is not set."""
    hbm_per_chip: int
    hbm_bytes_per_second_per_chip: float
    sbuf: int
    """On-chip state buffer of one physical core."""
    psum: int
    """Accumulation buffer of one physical core."""
    partitions: int
    native_dtypes: frozenset[str]
    narrowed_dtypes: tuple[tuple[str, str], ...]
    """Pairs of a dtype and the one that it is computed in."""
    tensor_flops: tuple[tuple[str, float], ...]
    """Peak dense matrix rate, operations per second, by the dtype of the operands."""
    tensor_hz: float
    """Clock of the tensor engine; the next three are those of the other engines."""
    vector_hz: float
    scalar_hz: float
    gpsimd_hz: float
    dma_bytes_per_second: float

    def dtype_support(self, dtype: str) -> DtypeSupport:
        """Return what the target does with ``dtype`` (a torch name such as ``"bfloat16"``)."""
        if dtype in self.native_dtypes:
            return DtypeSupport.NATIVE
        if any(dtype == wide for wide, _ in self.narrowed_dtypes):
            return DtypeSupport.NARROWED
        return DtypeSupport.UNSUPPORTED

    def computed_in(self, dtype: str) -> str:
        """Return the dtype in which the chip computes ``dtype``: itself, or a narrower one."""
        return dict(self.narrowed_dtypes).get(dtype, dtype)


# float8_e4m3fn is rejected up to Trn2, whose own e4m3 (largest value 240) has no torch name; complex and quantized
# dtypes exist on neither chip.
_TRN2_DTYPES = frozenset(
    {"bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "float8_e5m2"}
)
# The compiler's default for 64-bit integers is 32-bit arithmetic; float64 runs as float32.
_NARROWED = (("float64", "float32"), ("int64", "int32"), ("uint64", "uint32"))

TRN2 = Target(
    name="trn2",
    instance_names=("trn2", "trn2n", "trn2u"),
    cores_per_chip=8,
    default_lnc=2,
    hbm_per_chip=96 * GIB,
    hbm_bytes_per_second_per_chip=2.9e12,
    sbuf=28 * MIB,
    psum=2 * MIB,
    partitions=128,
    native_dtypes=_TRN2_DTYPES,
    narrowed_dtypes=_NARROWED,
    tensor_flops=(("float8_e5m2", 158e12), ("bfloat16", 79e12), ("float16", 79e12), ("float32", 20e12)),
    tensor_hz=2.4e9,
    vector_hz=0.96e9,
    scalar_hz=1.2e9,
    gpsimd_hz=1.2e9,
    dma_bytes_per_second=368e9,
)

TRN3 = Target(
    name="trn3",
    instance_names=("trn3", "trn3u"),
    cores_per_chip=8,
    default_lnc=2,
    hbm_per_chip=144 * GIB,
    hbm_bytes_per_second_per_chip=4.9e12,
    sbuf=32 * MIB,
    psum=2 * MIB,
    partitions=128,
    native_dtypes=_TRN2_DTYPES | {"float8_e4m3fn", "float8_e8m0fnu"},
    narrowed_dtypes=_NARROWED,
    # The float8 rate is that of microscaled (MX) operands.
    tensor_flops=(("float8_e4m3fn", 315e12), ("bfloat16", 79e12), ("float16", 79e12), ("float32", 20e12)),
    tensor_hz=2.4e9,
    vector_hz=1.2e9,
    scalar_hz=1.2e9,
    gpsimd_hz=1.2e9,
    dma_bytes_per_second=528e9,
)


@dataclass(frozen=True, slots=True)
class LogicalCore:
    """One core as the program sees it."""

    index: int
    """Number on the chip, as in ``NEURON_RT_VISIBLE_CORES``; not the device index."""
    physical: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoreLayout:
    """The cores that a process sees: device ``neuron:i`` is ``logical_cores[i]``."""

    target: Target
    lnc: int
    """Physical cores per logical core."""
    logical_cores: tuple[LogicalCore, ...]
    hbm_bytes_per_core: int
    """Device memory of one logical core."""


def find_target(name: str, targets: Mapping[str, Target]) -> Target:
    """Return the target called ``name``, or raise :class:`ConfigurationError` that lists those that exist."""
    try:
        return targets[name]
    except KeyError:
        raise ConfigurationError(
            f"There is no target {name!r}. Set {config.PLATFORM_TARGET_OVERRIDE.name} to one of: "
            f"{', '.join(sorted(targets))}."
        ) from None


def lay_out_cores(target: Target, environ: Mapping[str, str] | None = None) -> CoreLayout:
    """Return the cores of one ``target`` chip that the ``NEURON_*`` variables in ``environ`` show.

    Raises :class:`ConfigurationError` for a core that the chip does not have.
    """
    lnc = config.get(config.LOGICAL_NC_CONFIG, environ) or target.default_lnc
    count = target.cores_per_chip // lnc
    has = f"a {target.name} chip has {count} logical cores at LNC {lnc}"
    visible = config.get(config.RT_VISIBLE_CORES, environ)
    if visible is None:
        wanted = config.get(config.RT_NUM_CORES, environ)
        if wanted > count:
            raise ConfigurationError(
                f"{config.RT_NUM_CORES.name} asks for {wanted} cores, but {has}. Use a number from 0 (all) to {count}."
            )
        visible = tuple(range(wanted or count))
    for index in visible:
        if index >= count:
            raise ConfigurationError(
                f"{config.RT_VISIBLE_CORES.name} asks for core {index}, but {has}. Use cores 0 to {count - 1}."
            )
    return CoreLayout(
        target=target,
        lnc=lnc,
        logical_cores=tuple(LogicalCore(i, tuple(range(i * lnc, (i + 1) * lnc))) for i in visible),
        hbm_bytes_per_core=target.hbm_per_chip // count,
    )


def core_layout(environ: Mapping[str, str] | None = None) -> CoreLayout:
    """Return the cores of the emulated chip: the overridden target or ``trn2``, cut by the ``NEURON_*`` variables."""
    from torch_neuronx import plugins  # plugins carry targets, so that module imports this one

    name = config.get(config.PLATFORM_TARGET_OVERRIDE, environ) or DEFAULT_TARGET
    return lay_out_cores(find_target(name, plugins.manager().targets()), environ)
