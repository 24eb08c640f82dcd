"""Opening the device: what happens on its first use, and what the C++ core calls back."""

import atexit
import os
import sys
import threading
import warnings
from types import FrameType
from typing import ClassVar

from torch_neuronx import _C, _compat, config, logs, metrics
from torch_neuronx.errors import (
    ConfigurationError,
    DeviceError,
    Float64Warning,
    IntegerRangeError,
    NeuronError,
    RuntimeUnavailableError,
    UnsupportedDtypeError,
    UnsupportedOperatorError,
)
from torch_neuronx.events import OpFellBack
from torch_neuronx.op_status import OpStatus
from torch_neuronx.targets import CoreLayout

# The order of torch_neuronx::ErrorKind (csrc/runtime/error.h) and torch_neuronx::OpStatus (csrc/aten/op_info.h).
_ERRORS: tuple[type[NeuronError], ...] = (
    DeviceError,
    UnsupportedOperatorError,
    UnsupportedDtypeError,
    IntegerRangeError,
)
_STATUS_CODES = {OpStatus.NATIVE: 0, OpStatus.FALLBACK: 1, OpStatus.UNSUPPORTED: 2}

_UNLIMITED = 2**64 - 1
_DEFAULT_ROUNDING = 20 * 2**20


class _Device:
    lock = threading.RLock()
    forks_watched = False
    forked_while_opening = False
    layout: CoreLayout | None = None
    """Set when the device is open."""
    fallbacks_told: ClassVar[dict[str, int]] = {}
    """Fallbacks that observers have heard of, by operator."""


def is_in_bad_fork() -> bool:
    """Return whether this is a forked child of a process that had opened the device."""
    return _Device.forked_while_opening or _C.is_in_bad_fork()


def lazy_init() -> None:
    """Open the device unless it is open.

    Raises :class:`DeviceError` in a forked child, :class:`ConfigurationError` for a variable that cannot be used, and
    :class:`RuntimeUnavailableError` if the runtime cannot start.
    """
    if _C.is_initialized():
        return
    open_device()


def before_first_tensor() -> None:
    """Open the device, and ask plugins whether they object to a first tensor now.

    PyTorch calls this before it makes a tensor, until one call returned. Raises what :func:`lazy_init` raises, and a
    plugin's objection.
    """
    if is_in_bad_fork():
        _C.raise_bad_fork()
    _watch_forks()
    with _Device.lock:  # imports and plugins hold locks too: a child that is forked meanwhile must not come this far
        from torch_neuronx import plugins

        lazy_init()
        objection = plugins.manager().call_first("torch_neuronx_first_tensor", layout=layout())
    if objection is not None:
        raise objection


def layout() -> CoreLayout:
    """Return the cores that this process sees, without opening the device."""
    if _Device.layout is not None:
        return _Device.layout
    from torch_neuronx.runtimes.select import select_device_runtime

    return select_device_runtime().layout()


def open_device() -> None:
    """Resolve runtime, cores and rules, once, and hand them to the C++ core."""
    if is_in_bad_fork():
        _C.raise_bad_fork()
    _watch_forks()
    with _Device.lock:
        if _C.is_initialized():
            return
        from torch_neuronx.runtimes.select import select_device_runtime

        runtime = select_device_runtime()
        if not runtime.eager:
            raise RuntimeUnavailableError(
                f"The runtime {runtime.name!r} loads compiled programs but has no eager mode yet. Set "
                f"{config.RUNTIME.name}=emulator to use device neuron on this machine's CPU."
            )
        cores = runtime.layout()
        runtime.reserve(cores)
        runtime.enter_thread()
        allocator = _allocator_settings()
        relaxed = config.get(config.EMULATOR_RELAXED)
        track_ops = config.get(config.TRACK_OPS)
        _C.set_policy(
            relaxed=relaxed,
            fallback_only_unimplemented=config.get(config.FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS),
            strict_int64=config.get(config.STRICT_INT64),
        )
        _load_op_statuses()
        _say_what_has_no_effect()
        _C.open_device(
            count=len(cores.logical_cores),
            hbm_bytes=cores.hbm_bytes_per_core,
            protect=config.get(config.EMULATOR_PROTECT),
            max_split_bytes=allocator.get("kMaxSplitSizeBytes", _UNLIMITED),
            max_non_split_rounding_bytes=allocator.get("kMaxNonSplitRoundingBytes", _DEFAULT_ROUNDING),
        )
        _Device.layout = cores
        atexit.register(_compat.wait_for_autograd_threads)
        metrics.add_source(flush_fallbacks)
        if track_ops:
            _C.set_op_tracking(True)
        from torch_neuronx import plugins

        plugins.manager().call_each("torch_neuronx_device_opened")


def _watch_forks() -> None:
    if not _Device.forks_watched:
        _Device.forks_watched = True
        os.register_at_fork(after_in_child=_after_fork_in_child)


def _after_fork_in_child() -> None:
    """Note a fork while another thread was opening the device: what it holds, import locks too, nobody gives back."""
    if _Device.lock.acquire(blocking=False):
        _Device.lock.release()
    else:
        _Device.forked_while_opening = True


def _load_op_statuses() -> None:
    from torch_neuronx.ops.statuses import current_table

    _C.set_op_statuses(
        [(name, _STATUS_CODES[record.status], record.reason) for name, record in current_table().items()]
    )


def _say_what_has_no_effect() -> None:
    if config.get(config.ENABLE_CONCATENATION):
        logs.logger("eager").warning(
            "%s is set, but adaptive eager mode is not available yet: operators run one by one.",
            config.ENABLE_CONCATENATION.name,
        )
    # Every eager call on the emulator has finished when it returns, which is what NEURON_LAUNCH_BLOCKING asks for; it
    # is read here so that a value that is no boolean is refused.
    config.get(config.LAUNCH_BLOCKING)


_ALLOCATOR_KEYS = ("kMaxSplitSizeBytes", "kMaxNonSplitRoundingBytes")


def _allocator_settings() -> dict[str, int]:
    text = config.get(config.SEGMENT_ALLOCATOR_CONFIG)
    settings: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _ALLOCATOR_KEYS or not value.isdecimal():
            raise ConfigurationError(
                f"{config.SEGMENT_ALLOCATOR_CONFIG.name} has the part {part!r}. Use key=bytes pairs separated by "
                f"commas, with the keys {' and '.join(_ALLOCATOR_KEYS)}."
            )
        settings[key] = int(value)
    return settings


# What the C++ core calls ----------------------------------------------------------------------------------------------


def count_cores() -> int:
    """Return how many cores this process sees; 0 if that cannot be told. PyTorch forbids this question to raise."""
    try:
        return len(layout().logical_cores)
    except NeuronError as error:
        logs.logger("device").debug("no Neuron core is visible: %s", error)
        return 0


def raise_device_error(kind: int, message: str) -> None:
    """Raise the class of a ``torch_neuronx::ErrorKind``."""
    raise _ERRORS[kind](message)


# Modules of torch that compute in float64, or with masks, of their own accord: printing, the inverse of a loss scale,
# the comparison of traces.
_TORCHS_OWN = frozenset({"torch._tensor_str", "torch.amp.grad_scaler", "torch.jit._trace", "torch.testing._comparison"})


def _asked_by_torch() -> bool:
    """Whether it is torch itself that computes, so that the user has nothing to change."""
    frame: FrameType | None = sys._getframe()
    for _ in range(6):
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_globals.get("__name__") in _TORCHS_OWN:
            return True
    return False


def warn_float64() -> bool:
    """Say that float64 is computed as float32; return whether it was said."""
    if _asked_by_torch():
        return False
    warnings.warn(
        "float64 is computed as float32 on device neuron: the chip has no 64-bit floating point. Tensors keep the "
        "dtype, values have float32's precision. Use float32 to silence this, or set "
        f"{config.EMULATOR_RELAXED.name}=1 to compute in full on the emulator.",
        Float64Warning,
        stacklevel=2,
    )
    return True


def report_fallback(op: str, reason: str) -> bool:
    """Log an operator's first fallback and tell observers; return whether that was done.

    Later fallbacks of the operator are counted: :func:`flush_fallbacks`.
    """
    from torch_neuronx import plugins

    if _asked_by_torch():
        return False

    logs.logger("eager").warning("%s runs on the CPU instead of device neuron: %s. Said once per operator.", op, reason)
    _Device.fallbacks_told[op] = _Device.fallbacks_told.get(op, 0) + 1
    plugins.notify(OpFellBack(op=without_overload(op), reason=reason))
    return True


def flush_fallbacks() -> None:
    """Tell observers of the fallbacks since the last time, one event per operator."""
    from torch_neuronx import plugins

    for op, count in _C.fallback_counts().items():
        fresh = count - _Device.fallbacks_told.get(op, 0)
        if fresh > 0:
            _Device.fallbacks_told[op] = count
            plugins.notify(OpFellBack(op=without_overload(op), reason="", calls=fresh))


def without_overload(op: str) -> str:
    """``aten::complex.out`` -> ``aten::complex``, the name that users know."""
    return op.partition(".")[0]
