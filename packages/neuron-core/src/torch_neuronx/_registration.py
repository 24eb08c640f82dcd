"""The steps that make ``neuron`` a device of PyTorch, in order, once per process.

Nothing here imports torch before :func:`register` runs: `import torch` calls it at its end, and whoever imported this
module first would be met half-made.
"""

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any

from torch_neuronx.errors import BrokenInstallError, LegacyPackageError, NeuronError

DEVICE = "neuron"


class _State:
    registered = False
    failure: Exception | None = None
    """Why the device cannot be used; raised on first use."""


def failure() -> Exception | None:
    """Return why the device cannot be used in this process, or ``None``."""
    return _State.failure


def register() -> None:
    """Register the device with PyTorch. Never raises; :func:`failure` has what went wrong."""
    if _State.registered:
        return
    _State.registered = True
    try:
        from torch.utils.backend_registration import rename_privateuse1_backend

        rename_privateuse1_backend(DEVICE)
    except Exception as error:  # another backend has the slot: leave it alone
        _State.failure = error
        return
    try:
        core = _load_core()
    except Exception as error:  # whatever it is, `import torch` must survive it; first use raises it
        _State.failure = error
        _register_unusable()
        return
    try:
        _register(core)
    except Exception as error:  # as above
        _State.failure = error


def raise_failure() -> None:
    """Raise why the device cannot be used in this process, if it cannot."""
    cause = _State.failure
    if cause is None:
        return
    if isinstance(cause, NeuronError):
        raise type(cause)(*cause.args)  # a fresh one each time: a raised one collects tracebacks
    raise BrokenInstallError(f"Device neuron cannot be used: {cause!r}. Run `torch-neuronx doctor` for the details.")


def _load_core() -> ModuleType:
    """Import the compiled core, after a look at what it was built for: the wrong torch would crash, not raise."""
    import torch

    _refuse_legacy_package()
    _check_build(torch.__version__)
    try:
        return importlib.import_module("torch_neuronx._C")
    except ImportError as error:
        raise BrokenInstallError(
            f"The compiled core of torch-neuronx cannot be loaded: {error}. Reinstall it for this torch "
            f"({torch.__version__}): pip install --force-reinstall --no-deps torch-neuronx"
        ) from error


def _check_build(installed: str) -> None:
    try:
        from torch_neuronx import _build_info as built
    except ImportError:
        raise BrokenInstallError(
            "The compiled core of torch-neuronx is missing: this is a source tree that was not built. Build it with: "
            "python -m torch_neuronx.build packages/neuron-core"
        ) from None
    mine, theirs = _minor(built.TORCH_VERSION), _minor(installed)
    if mine != theirs:
        raise BrokenInstallError(
            f"torch-neuronx was built for torch {mine}, but torch {installed} is installed. Install the "
            f"matching release: pip install 'torch-neuronx=={theirs}.*', or torch: pip install 'torch=={mine}.*'"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _refuse_legacy_package() -> None:
    """The XLA-based package has the same distribution and import name; its leftovers shadow ours."""
    spec = importlib.util.find_spec("torch_neuronx")
    roots = spec.submodule_search_locations if spec is not None else None
    for leftover in ("torch_neuronx.xla_impl", "torch_neuronx.pyhlo"):
        if roots and importlib.util.find_spec(leftover) is not None:
            raise LegacyPackageError(
                f"Files of the older, XLA-based torch-neuronx share this environment ({leftover} exists), and the "
                "two cannot live together. Remove both with `pip uninstall torch-neuronx` until nothing is left, then "
                "install this one again."
            )


def _register(core: Any) -> None:
    from torch_neuronx import _compat
    from torch_neuronx.device import _opening

    core.install(
        _opening.open_device,
        _opening.count_cores,
        _opening.raise_device_error,
        _opening.report_fallback,
        _opening.warn_float64,
    )
    from torch_neuronx import device

    _compat.register_device_module(DEVICE, device)
    _compat.generate_methods(DEVICE)
    os.register_at_fork(before=_compat.wait_for_autograd_threads)
    _register_process_group_door()


def _register_unusable() -> None:
    """Let ``neuron`` be named, and answer every use with the cause."""
    from torch_neuronx import _compat

    try:
        _compat.register_absent_backend()
        _compat.register_device_module(DEVICE, _unusable_module())
    except Exception as error:
        if _State.failure is not None:
            _State.failure.add_note(f"What stands in for the device could not be registered either: {error}")


def _unusable_module() -> ModuleType:
    module = ModuleType("torch.neuron", "Device neuron, which cannot be used in this process.")

    def refuse(*_: Any, **__: Any) -> Any:
        raise_failure()

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refuse

    module.is_available = lambda: False  # type: ignore[attr-defined]
    module.is_initialized = lambda: False  # type: ignore[attr-defined]
    module.device_count = lambda: 0  # type: ignore[attr-defined]
    module._is_in_bad_fork = lambda: False  # type: ignore[attr-defined]
    module.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]  # torch.manual_seed must keep working
    module._lazy_init = refuse  # type: ignore[attr-defined]
    module.__getattr__ = missing  # type: ignore[method-assign]
    return module


def _register_process_group_door() -> None:
    """Without the dist extra, make ``init_process_group("neuron")`` say how to install it."""
    from torch_neuronx import _compat

    if importlib.util.find_spec("torch_neuronx_dist") is None:
        _compat.register_process_group(DEVICE, _refuse_process_group)


def _refuse_process_group(*_: Any) -> Any:
    from torch_neuronx.errors import MissingExtraError

    raise MissingExtraError.for_extra("dist", "torch.distributed's backend 'neuron'")
