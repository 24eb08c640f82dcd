"""Every environment variable of the project, declared once.

A variable is read when it is asked for, never at import::

    from torch_neuronx import config

    if config.get(config.COMPILE_ONLY): ...

``docs/variables.md`` and ``torch-neuronx env`` are made from this list.
"""

import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from torch_neuronx.errors import ConfigurationError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class ValueType(Generic[T_co]):
    """How the text of a variable is read."""

    name: str
    accepts: str
    """Completes the sentence "use …" in an error."""
    parse: Callable[[str], T_co]
    """Raises ``ValueError`` for text that it does not accept."""


class Kind(StrEnum):
    """What a variable is about; one section of the documentation each."""

    CORES = "Targets and cores"
    EAGER = "Eager mode"
    EMULATOR = "Runtimes and the emulator"
    DISTRIBUTED = "Distributed training"
    COMPILATION = "Compilation"
    CACHING = "Caching"
    METRICS = "Metrics and logging"
    PLUGINS = "Plugins"


class Source(StrEnum):
    """Where a value comes from."""

    ENVIRONMENT = "environment"
    DEFAULT = "default"


@dataclass(frozen=True)
class Variable(Generic[T_co]):
    """One environment variable."""

    name: str
    type: ValueType[T_co]
    default: T_co | Callable[[], T_co]
    """The value where the variable is not set, or a function that makes it."""
    summary: str
    kind: Kind
    aliases: tuple[str, ...] = ()
    """Older spellings; ``name`` wins where both are set."""
    honoured_by: tuple[str, ...] = ()
    """The distributions that read it; empty: it is accepted and checked, and has no effect yet."""
    default_text: str | None = None
    """The default for people, where the value itself says too little."""


@dataclass(frozen=True)
class Setting(Generic[T_co]):
    """What one variable is set to."""

    variable: Variable[T_co]
    value: T_co
    source: Source
    spelling: str
    """The name it was found under: the variable's, or an alias."""


_variables: dict[str, Variable[Any]] = {}
VARIABLES: Mapping[str, Variable[Any]] = MappingProxyType(_variables)
"""Every variable by name, in the order of declaration."""


def _declare(variable: Variable[T]) -> Variable[T]:
    _variables[variable.name] = variable
    return variable


def find(name: str) -> Variable[Any]:
    """Return the variable declared under ``name`` or with ``name`` as an alias.

    Raises :class:`ConfigurationError` if there is none.
    """
    if name in _variables:
        return _variables[name]
    for variable in _variables.values():
        if name in variable.aliases:
            return variable
    raise ConfigurationError(f"No environment variable {name!r} is declared. `torch-neuronx env` lists those that are.")


def read(variable: Variable[T], environ: Mapping[str, str] | None = None) -> Setting[T]:
    """Read ``variable`` from ``environ`` (default: ``os.environ``).

    Raises :class:`ConfigurationError` if its text is not accepted.
    """
    environ = os.environ if environ is None else environ
    for spelling in (variable.name, *variable.aliases):
        text = environ.get(spelling)
        if text is None:
            continue
        try:
            value = variable.type.parse(text)
        except ValueError:
            raise ConfigurationError(
                f"The environment variable {spelling} is set to {text!r}, which is not accepted. "
                f"Use {variable.type.accepts}."
            ) from None
        return Setting(variable, value, Source.ENVIRONMENT, spelling)
    return Setting(variable, default(variable), Source.DEFAULT, variable.name)


def default(variable: Variable[T]) -> T:
    """Return the value of ``variable`` where it is not set."""
    return variable.default() if callable(variable.default) else variable.default


@overload
def get(variable: Variable[T], environ: Mapping[str, str] | None = None) -> T: ...
@overload
def get(variable: str, environ: Mapping[str, str] | None = None) -> Any: ...
def get(variable: Variable[Any] | str, environ: Mapping[str, str] | None = None) -> Any:
    """Return the typed value of a variable, or raise :class:`ConfigurationError`."""
    return read(find(variable) if isinstance(variable, str) else variable, environ).value


def source(variable: Variable[Any] | str, environ: Mapping[str, str] | None = None) -> Source:
    """Return where the value of a variable comes from, or raise :class:`ConfigurationError`."""
    return read(find(variable) if isinstance(variable, str) else variable, environ).source


def show(value: object) -> str:
    """Write a value for people, in a form that the variable accepts back where there is one."""
    match value:
        case None:
            return ""
        case bool():
            return "1" if value else "0"
        case tuple():
            return ",".join(map(show, value))
        case _:
            return str(value)


def default_text(variable: Variable[Any]) -> str:
    """Write the default of a variable for people."""
    return show(default(variable)) if variable.default_text is None else variable.default_text


# How text is read -----------------------------------------------------------------------------------------------------


def _parse_bool(text: str) -> bool:
    match text.lower():
        case "1" | "true" | "yes":
            return True
        case "0" | "false" | "no":
            return False
    raise ValueError(text)


def _parse_int(text: str, choices: range) -> int:
    if re.fullmatch(r"[0-9]+", text, re.ASCII) is None or int(text) not in choices:
        raise ValueError(text)
    return int(text)


_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+) ?([kmgt]ib)?", text.lower(), re.ASCII)
    if match is None or int(match[1]) == 0:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2] or ""]


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _parse_path(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text)


def _parse_word(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


def _parse_core_list(text: str) -> tuple[int, ...]:
    cores: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r" *([0-9]+) *(?:- *([0-9]+) *)?", part, re.ASCII)
        if match is None:
            raise ValueError(text)
        first, last = int(match[1]), int(match[2] or match[1])
        # The largest instance has 128 physical cores; a longer range is a slip of the finger, not a list to build.
        if last < first or last - first >= 1024:
            raise ValueError(text)
        cores.extend(range(first, last + 1))
    if len(set(cores)) != len(cores):
        raise ValueError(text)
    return tuple(cores)


BOOL = ValueType("bool", "1, true or yes, or 0, false or no, in any case", _parse_bool)
SIZE = ValueType("size", "a number of bytes above 0, such as 67108864 or 64MiB (KiB, MiB, GiB, TiB)", _parse_size)
NAMES = ValueType("list", "names separated by commas", _parse_names)
PATH = ValueType("path", "a path", _parse_path)
LOCATION = ValueType("path or URL", "a path, or the URL of a store", _parse_word)
TEXT = ValueType("str", "any text", str)
WORD = ValueType("str", "a name", _parse_word)
CORE_LIST = ValueType("cores", "distinct core numbers and inclusive ranges, such as 0 or 0,2 or 0-3", _parse_core_list)


def _parse_verify(text: str) -> str:
    if text not in ("strict", "warn", "off"):
        raise ValueError(text)
    return text


VERIFY = ValueType("verify", "strict, warn or off", _parse_verify)


def _integer(choices: range, accepts: str) -> ValueType[int]:
    return ValueType("int", accepts, lambda text: _parse_int(text, choices))


_AT_LEAST_0 = range(2**63)

# The variables --------------------------------------------------------------------------------------------------------

_CORE = "torch-neuronx"
_DIST = "torch-neuronx-dist"
_CACHE = "torch-neuronx-cache"
_COMPILE = "torch-neuronx-compile"

PLATFORM_TARGET_OVERRIDE = _declare(
    Variable[str | None](
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        WORD,
        None,
        "Target platform (`trn2`, `trn3`, or one that a plugin adds). Not set: the runtime is asked; the emulator "
        "answers `trn2`.",
        Kind.CORES,
        honoured_by=(_CORE, _COMPILE),
        default_text="(the runtime's)",
    )
)
RT_VISIBLE_CORES = _declare(
    Variable[tuple[int, ...] | None](
        "NEURON_RT_VISIBLE_CORES",
        CORE_LIST,
        None,
        "Logical cores to show, in this order, as `neuron:0`, `neuron:1`, …; wins over `NEURON_RT_NUM_CORES`.",
        Kind.CORES,
        honoured_by=(_CORE,),
        default_text="(all)",
    )
)
RT_NUM_CORES = _declare(
    Variable(
        "NEURON_RT_NUM_CORES",
        _integer(_AT_LEAST_0, "a whole number, 0 for all cores"),
        0,
        "How many logical cores to show; 0 shows all.",
        Kind.CORES,
        honoured_by=(_CORE,),
    )
)
LOGICAL_NC_CONFIG = _declare(
    Variable[int | None](
        "NEURON_LOGICAL_NC_CONFIG",
        _integer(range(1, 3), "1 or 2"),
        None,
        "Physical cores per logical core (LNC), 1 or 2.",
        Kind.CORES,
        honoured_by=(_CORE,),
        default_text="(the target's: 2)",
    )
)

FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS = _declare(
    Variable(
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
        BOOL,
        False,
        "When true, only operators that the target does not implement may run on the CPU; a native operator that "
        "fails raises.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)
LAUNCH_BLOCKING = _declare(
    Variable(
        "NEURON_LAUNCH_BLOCKING",
        BOOL,
        False,
        "When true, every eager operator is synchronous. On the emulator they always are.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)
ENABLE_CONCATENATION = _declare(
    Variable(
        "TORCH_NEURONX_ENABLE_CONCATENATION",
        BOOL,
        False,
        "Asks for adaptive eager mode, which joins eager operators. Not available yet; a warning says so once.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)
SEGMENT_ALLOCATOR_CONFIG = _declare(
    Variable(
        "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG",
        TEXT,
        "",
        "Settings of the device allocator, `key=value` separated by commas: `kMaxSplitSizeBytes`, "
        "`kMaxNonSplitRoundingBytes`.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)
STRICT_INT64 = _declare(
    Variable(
        "TORCH_NEURONX_STRICT_INT64",
        BOOL,
        False,
        "When true, an int64 value that the chip would truncate to 32 bits raises, naming operator and value.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)
TRACK_OPS = _declare(
    Variable(
        "TORCH_NEURONX_TRACK_OPS",
        BOOL,
        False,
        "When true, the names of executed and of fallback operators are recorded from the start.",
        Kind.EAGER,
        honoured_by=(_CORE,),
    )
)

RUNTIME = _declare(
    Variable(
        "TORCH_NEURONX_RUNTIME",
        WORD,
        "auto",
        "The runtime: `emulator`, `nrt`, one that a plugin adds, or `auto`: `nrt` where a Neuron device and libnrt "
        "exist, else the emulator.",
        Kind.EMULATOR,
        honoured_by=(_CORE, _COMPILE),
    )
)
EMULATOR_HBM_BYTES = _declare(
    Variable[int | None](
        "TORCH_NEURONX_EMULATOR_HBM_BYTES",
        SIZE,
        None,
        "Device memory of each emulated logical core.",
        Kind.EMULATOR,
        honoured_by=(_CORE,),
        default_text="(the target's: 24 GiB on trn2)",
    )
)
EMULATOR_PROTECT = _declare(
    Variable(
        "TORCH_NEURONX_EMULATOR_PROTECT",
        BOOL,
        False,
        "When true, emulated device memory cannot be read or written outside kernels: host code that follows a "
        "device pointer crashes where it does so.",
        Kind.EMULATOR,
        honoured_by=(_CORE,),
    )
)
EMULATOR_RELAXED = _declare(
    Variable(
        "TORCH_NEURONX_EMULATOR_RELAXED",
        BOOL,
        False,
        "When true, the emulator drops the chip's rules as a whole: float64 in full precision, unsupported operators "
        "run, no core rules.",
        Kind.EMULATOR,
        honoured_by=(_CORE, _COMPILE, _DIST),
    )
)

LOCAL_RANK = _declare(
    Variable[int | None](
        "LOCAL_RANK",
        _integer(_AT_LEAST_0, "a whole number"),
        None,
        "Set by launchers such as `torchrun`: number of the process on its host, and of the visible core it takes.",
        Kind.DISTRIBUTED,
        honoured_by=(_CORE, _DIST),
        default_text="(not launched)",
    )
)
LOCAL_WORLD_SIZE = _declare(
    Variable[int | None](
        "LOCAL_WORLD_SIZE",
        _integer(range(1, 2**31), "a whole number above 0"),
        None,
        "Set by launchers such as `torchrun`: how many processes there are on the host.",
        Kind.DISTRIBUTED,
        honoured_by=(_CORE,),
        default_text="(not launched)",
    )
)
WORLD_SIZE = _declare(
    Variable[int | None](
        "WORLD_SIZE",
        _integer(range(1, 2**31), "a whole number above 0"),
        None,
        "Set by launchers such as `torchrun`: how many processes there are on all hosts.",
        Kind.DISTRIBUTED,
        honoured_by=(_DIST,),
        default_text="(not launched)",
    )
)
RESERVE_CORES = _declare(
    Variable(
        "TORCH_NEURONX_EMULATOR_RESERVE_CORES",
        BOOL,
        False,
        "When true, a process keeps its emulated cores to itself even where no launcher started it. Under a launcher "
        "it always does.",
        Kind.DISTRIBUTED,
        honoured_by=(_CORE,),
    )
)

DISABLE_FALLBACK_EXECUTION = _declare(
    Variable(
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
        BOOL,
        True,
        "When true, a failure to compile or to run a graph raises; when false, the original graph runs in eager mode.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)


@cache
def _debug_directory() -> Path:
    return Path(f"/tmp/neuron_backend_{uuid.uuid4().hex}")


DEBUG_DIR = _declare(
    Variable(
        "TORCH_NEURONX_DEBUG_DIR",
        PATH,
        _debug_directory,
        "Directory of compilation artifacts: FX graphs, MLIR, StableHLO, NEFF files. Where it is set, they are "
        "written; without `TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS` they are removed when the program ends.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
        default_text="/tmp/neuron_backend_<random, one per process>",
    )
)
PRESERVE_COMPILATION_ARTIFACTS = _declare(
    Variable(
        "TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS",
        BOOL,
        False,
        "When true, compilation artifacts are written and kept after the program.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
COMPILE_ONLY = _declare(
    Variable(
        "TORCH_NEURONX_COMPILE_ONLY",
        BOOL,
        False,
        "When true, graphs are compiled and not executed, and a runtime that does not start is no error; see "
        "`torch_neuronx.compiler.compile_only()`.",
        Kind.COMPILATION,
        honoured_by=(_CORE,),
    )
)
DYNAMO_DISABLE_CPU_AUTOCOPY = _declare(
    Variable(
        "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY",
        BOOL,
        False,
        "When true, a CPU tensor among the inputs of a compiled graph raises instead of being copied to the device.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
RETAIN_DEVICE_MODE = _declare(
    Variable(
        "TORCH_NEURONX_RETAIN_DEVICE_MODE",
        BOOL,
        False,
        "When true, outputs of a compiled graph go to the device that they had before compilation.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
COMPILE_WORKER_MEMORY = _declare(
    Variable[int | None](
        "TORCH_NEURONX_COMPILE_WORKER_MEMORY",
        SIZE,
        None,
        "Most bytes of address space of a process that compiles; a graph that needs more is an error. Not set: no "
        "limit.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
PROGRESS = _declare(
    Variable(
        "TORCH_NEURONX_PROGRESS",
        BOOL,
        True,
        "When true and stderr is a terminal, a line shows what compiles for longer than a second.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
CC_FLAGS = _declare(
    Variable(
        "NEURON_CC_FLAGS",
        TEXT,
        "",
        "Further flags for the `neuronx-cc` command; checked on the emulator too, and part of every NEFF's key.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
STRICT_OPTIONS = _declare(
    Variable(
        "TORCH_NEURONX_STRICT_OPTIONS",
        BOOL,
        False,
        "When true, an option of `torch.compile` that this backend does not know raises; otherwise a warning says so.",
        Kind.COMPILATION,
        honoured_by=(_COMPILE,),
    )
)
ENABLE_NKI_SDPA = _declare(
    Variable(
        "TORCH_NEURONX_ENABLE_NKI_SDPA",
        BOOL,
        True,
        "When true, `scaled_dot_product_attention` uses the NKI flash-attention kernel where it can: query lengths "
        "that are multiples of 2048.",
        Kind.COMPILATION,
        honoured_by=("torch-neuronx-nki",),
    )
)
ENABLE_NKI_RMS_NORM = _declare(
    Variable(
        "TORCH_NEURONX_ENABLE_NKI_RMS_NORM",
        BOOL,
        False,
        "When true, `rms_norm` uses the NKI kernel for rows of up to 4096 elements; false leaves it to the compiler.",
        Kind.COMPILATION,
        honoured_by=("torch-neuronx-nki",),
    )
)
NKI_SIMULATOR = _declare(
    Variable(
        "NKI_SIMULATOR",
        BOOL,
        True,
        "When true, calling an NKI kernel runs it in the simulator, the only way to run one here; false makes calls on "
        "CPU tensors and NumPy arrays raise.",
        Kind.EMULATOR,
        honoured_by=("torch-neuronx-nki",),
    )
)
EMULATOR_FAST_KERNELS = _declare(
    Variable(
        "TORCH_NEURONX_EMULATOR_FAST_KERNELS",
        BOOL,
        False,
        "When true, the emulator runs an NKI kernel that names an equivalent function of torch by that function, which "
        "is faster and rounds differently; false simulates every kernel.",
        Kind.EMULATOR,
        honoured_by=("torch-neuronx-nki",),
    )
)
NKI_PRECISE_FP = _declare(
    Variable(
        "NKI_PRECISE_FP",
        BOOL,
        True,
        "When true, simulated NKI kernels round to the types that they name; false keeps narrow floating-point types "
        "in float32, which tells mistakes of logic from rounding.",
        Kind.EMULATOR,
        honoured_by=("torch-neuronx-nki",),
    )
)

NKI_VERIFY = _declare(
    Variable(
        "TORCH_NEURONX_NKI_VERIFY",
        VERIFY,
        "strict",
        "What the verifier does with an error in a simulated NKI kernel: `strict` raises, `warn` warns, `off` does not "
        "look.",
        Kind.EMULATOR,
        honoured_by=("torch-neuronx-nki",),
    )
)

NEFF_CACHE_DIR = _declare(
    Variable(
        "TORCH_NEURONX_NEFF_CACHE_DIR",
        LOCATION,
        "/tmp/neff_cache",
        "Directory or URL of the persistent NEFF cache; a directory may be on a shared mount.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
HLO_CACHE_DIR = _declare(
    Variable(
        "TORCH_NEURONX_HLO_CACHE_DIR",
        LOCATION,
        "/tmp/hlo_cache",
        "Directory or URL of the persistent HLO cache, shared by eager mode and `torch.compile`.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
NEFF_DISABLE_CACHE = _declare(
    Variable(
        "TORCH_NEURONX_NEFF_DISABLE_CACHE",
        BOOL,
        False,
        "When true, every compile runs fresh: no NEFF is looked up or kept, in memory, on disk or in PyTorch's caches.",
        Kind.CACHING,
        honoured_by=(_COMPILE, _CACHE),
        aliases=("TORCH_NEURONX_DISABLE_NEFF_CACHE",),
    )
)
NEFF_LOCAL_CACHE_DIR = _declare(
    Variable(
        "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",
        PATH,
        Path("/tmp/local_cache"),
        "Local directory of file locks, scratch files and what was seen not to lower. Must be on a local POSIX file "
        "system.",
        Kind.CACHING,
        honoured_by=(_CACHE, _COMPILE),
    )
)
NEFF_CACHE_LOCK_TIMEOUT = _declare(
    Variable(
        "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT",
        _integer(_AT_LEAST_0, "a whole number of seconds"),
        1200,
        "Seconds to wait for another process that compiles the same key.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
CACHE_TRUST = _declare(
    Variable(
        "TORCH_NEURONX_CACHE_TRUST",
        TEXT,
        "",
        "Users, by name or id and separated by commas, whose cache entries are loaded besides one's own.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
CACHE_SIGNING_KEY_FILE = _declare(
    Variable(
        "TORCH_NEURONX_CACHE_SIGNING_KEY_FILE",
        TEXT,
        "",
        "File with the key that signs cache entries; where it is set, only signed entries are loaded.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
CACHE_MAX_SIZE = _declare(
    Variable(
        "TORCH_NEURONX_CACHE_MAX_SIZE",
        TEXT,
        "",
        "Bound on a cache store, such as `10G`; the entries that were not used for longest go first.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
        default_text="(none)",
    )
)
CACHE_MAX_AGE = _declare(
    Variable(
        "TORCH_NEURONX_CACHE_MAX_AGE",
        TEXT,
        "",
        "Cache entries that were not used for this long, such as `30d`, go.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
        default_text="(none)",
    )
)
CACHE_MEMORY_SIZE = _declare(
    Variable(
        "TORCH_NEURONX_CACHE_MEMORY_SIZE",
        TEXT,
        "64M",
        "Bound on the cache entries that a process keeps in memory; 0 keeps none.",
        Kind.CACHING,
        honoured_by=(_CACHE,),
    )
)
CACHING_PRECOMPILE = _declare(
    Variable(
        "TORCH_CACHING_PRECOMPILE",
        BOOL,
        False,
        "PyTorch's own switch of the Dynamo precompile cache, saved under `TORCHINDUCTOR_CACHE_DIR`.",
        Kind.CACHING,
        honoured_by=("torch",),
    )
)

METRICS_ENABLED = _declare(
    Variable(
        "TORCH_NEURONX_METRICS_ENABLED",
        BOOL,
        True,
        "When true, the counters of `torch_neuronx.metrics` count from the start.",
        Kind.METRICS,
        honoured_by=(_CORE,),
    )
)
ENABLED_METRIC_TABLES = _declare(
    Variable(
        "TORCH_NEURONX_ENABLED_METRIC_TABLES",
        NAMES,
        (),
        "Metric tables to write as CSV files, separated by commas; `graph_stats` is the table of compilations.",
        Kind.METRICS,
        honoured_by=(_COMPILE,),
    )
)
METRICS_DIR = _declare(
    Variable(
        "TORCH_NEURONX_METRICS_DIR",
        PATH,
        Path("/tmp"),
        "Directory of the CSV files of metrics, one per process.",
        Kind.METRICS,
        honoured_by=(_COMPILE,),
    )
)
LOG_LEVEL = _declare(
    Variable(
        "TORCH_NEURONX_LOG_LEVEL",
        _integer(range(4), "a whole number from 0 (warnings) to 3 (debug)"),
        0,
        "How much is logged: 0 warnings, 1 information, 2 details, 3 debug.",
        Kind.METRICS,
        honoured_by=(_CORE,),
    )
)

DISABLE_PLUGINS = _declare(
    Variable(
        "TORCH_NEURONX_DISABLE_PLUGINS",
        NAMES,
        (),
        "Plugins to leave out: names of entry points or of distributions, separated by commas; `all` leaves out every "
        "installed plugin.",
        Kind.PLUGINS,
        honoured_by=(_CORE, _CACHE),
    )
)
