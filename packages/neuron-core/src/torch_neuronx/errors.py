"""Every error class of the project.

Each class has a ``code``: a slug that stays the same between releases, so that a program can tell errors apart and
``docs/errors.md`` can explain each one. Every class also derives from the built-in exception that Python code would
catch for the same mistake.
"""

from typing import ClassVar, Self


class NeuronError(RuntimeError):
    """Base of every error that the project raises on purpose."""

    code: ClassVar[str] = "neuron-error"


class ConfigurationError(NeuronError, ValueError):
    """A variable, an option or a combination of them has a value that cannot be used."""

    code = "configuration"


class MissingExtraError(NeuronError, ImportError):
    """The feature lives in an optional distribution that is not installed."""

    code = "missing-extra"

    @classmethod
    def for_extra(cls, extra: str, feature: str) -> Self:
        """Build the error for ``feature``, which the extra ``extra`` of ``torch-neuronx`` provides."""
        return cls(f"{feature} needs an optional package. Install it with: pip install 'torch-neuronx[{extra}]'")


class BrokenInstallError(NeuronError, ImportError):
    """The compiled part of an installed package cannot be loaded, or was built for another torch."""

    code = "broken-install"


class LegacyPackageError(NeuronError, ImportError):
    """The older, XLA-based package of the same name shares the environment."""

    code = "legacy-package"


class UnsupportedOperatorError(NeuronError, NotImplementedError):
    """The target has no way to run the operator, not even through the CPU."""

    code = "unsupported-operator"


class UnsupportedDtypeError(NeuronError, TypeError):
    """The target cannot hold or compute the dtype."""

    code = "unsupported-dtype"


class IntegerRangeError(NeuronError, OverflowError):
    """A 64-bit integer does not fit the 32 bits that the chip computes with (strict mode only)."""

    code = "integer-range"


class DeviceError(NeuronError):
    """The device cannot be used: no such core, or the process was forked after its first use."""

    code = "device"


class TooManyRanksError(DeviceError):
    """A launcher started more processes on this host than there are cores for them."""

    code = "too-many-ranks"


class CoreBusyError(DeviceError):
    """Another process of this user holds the core."""

    code = "core-busy"


class PluginError(NeuronError):
    """A plugin does not follow a hook's contract."""

    code = "plugin"


class DuplicatePluginNameError(PluginError):
    """Two plugins claim one name."""

    code = "duplicate-plugin-name"


class NeffFormatError(NeuronError, ValueError):
    """The bytes are not a whole, unaltered NEFF."""

    code = "neff-format"


class NeffMismatchError(NeuronError):
    """The NEFF is sound but was made for another runtime or for another number of cores."""

    code = "neff-mismatch"


class RuntimeUnavailableError(NeuronError):
    """The runtime that was asked for cannot start on this machine."""

    code = "runtime-unavailable"


class NEFFCompilationError(NeuronError):
    """A compiler did not produce a NEFF."""

    code = "neff-compilation"


class NEFFExecutionError(NeuronError):
    """The runtime did not load, run or serve a NEFF."""

    code = "neff-execution"


class Float64Warning(UserWarning):
    """float64 is computed as float32 on the device; said once per process."""


class PluginWarning(UserWarning):
    """A plugin was skipped, or failed while it observed events; everything else goes on."""
