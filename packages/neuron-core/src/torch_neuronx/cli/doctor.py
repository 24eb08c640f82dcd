"""``torch-neuronx doctor``: what is installed, whether it fits together, and how to mend it."""

import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata

from packaging.requirements import Requirement

from torch_neuronx import installed
from torch_neuronx.cli.output import print_json, print_rows
from torch_neuronx.cli.plugin_list import inspect_plugins
from torch_neuronx.cli.variables import rows as variable_rows
from torch_neuronx.errors import NeuronError
from torch_neuronx.plugins import PluginState, manager

CORE = "torch-neuronx"
EXTRAS = {
    "compile": "torch.compile",
    "dist": "torch.distributed",
    "nki": "NKI kernels",
    "cache": "the persistent cache",
}
"""The optional distributions ``torch-neuronx-<extra>`` and what each is for."""
LEGACY = ("torch-xla", "libneuronxla", "torch-neuron")
"""Distributions of the older, XLA-based software."""


class Health(StrEnum):
    """How one thing is."""

    OK = "ok"
    NOTE = "note"
    """Absent or unusual, and nothing to mend."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    health: Health
    detail: str
    fix: str = ""


def run(*, verify: bool, as_json: bool) -> int:
    """Print every check; return 1 if there is a problem."""
    checks = list(examine(verify=verify))
    healthy = all(check.health is not Health.PROBLEM for check in checks)
    if as_json:
        print_json({"ok": healthy, "checks": [asdict(check) for check in checks]})
    else:
        print_rows([asdict(check) for check in checks], ["name", "health", "detail", "fix"])
    return 0 if healthy else 1


def examine(*, verify: bool) -> Iterator[Check]:
    """Look at everything; a check that itself fails is a problem, and the others go on."""
    steps: list[Callable[[], Iterator[Check]]] = [
        _python, _distributions, _legacy, _variables, _plugins, _torch, _extension, _toolchain, _cores,
    ]  # fmt: skip
    if verify:
        steps.append(_verify)
    for step in steps:
        try:
            yield from step()
        except Exception as error:  # whatever breaks here is what the user came to learn
            fix = "" if isinstance(error, NeuronError) else "Report this with the whole output."
            yield Check(step.__name__.strip("_"), Health.PROBLEM, f"{type(error).__name__}: {error}", fix)


def _python() -> Iterator[Check]:
    fits = sys.version_info >= (3, 11)
    fix = "" if fits else "Use Python 3.11 or later."
    yield Check("python", Health.OK if fits else Health.PROBLEM, f"{platform.python_version()} ({sys.executable})", fix)


def _distributions() -> Iterator[Check]:
    version = installed.version(CORE)
    if version is None:
        yield Check(CORE, Health.PROBLEM, "imported, but not installed", f"pip install {CORE}")
    else:
        yield from _requirements(CORE, version)
    for extra, purpose in EXTRAS.items():
        name = f"{CORE}-{extra}"
        version = installed.version(name)
        if version is None:
            yield Check(name, Health.NOTE, f"not installed; needed for {purpose}", f"pip install '{CORE}[{extra}]'")
        else:
            yield from _requirements(name, version)


def _requirements(name: str, version: str) -> Iterator[Check]:
    """Check what one installed distribution requires; of extras, only those that are installed."""
    unmet = []
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        found = installed.version(requirement.name)
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if found is None and needed:
            unmet.append((f"{requirement.name} is missing", str(requirement).partition(";")[0].strip()))
        elif found is not None and not requirement.specifier.contains(found, prereleases=True):
            wanted = f"{requirement.name}{requirement.specifier}"
            unmet.append((f"{requirement.name} {found} does not fit {requirement.specifier}", wanted))
    if unmet:
        wanted = " ".join(f"'{requirement}'" for _, requirement in unmet)
        detail = f"{version}; {'; '.join(problem for problem, _ in unmet)}"
        yield Check(name, Health.PROBLEM, detail, f"pip install {wanted}")
    else:
        yield Check(name, Health.OK, version)


def _legacy() -> Iterator[Check]:
    for name in LEGACY:
        if version := installed.version(name):
            yield Check(
                name,
                Health.PROBLEM,
                f"{version}; belongs to the older, XLA-based software, which cannot share an environment with this one",
                f"pip uninstall {name}, or use a fresh environment",
            )


def _variables() -> Iterator[Check]:
    errors = [row.error for row in variable_rows() if row.error]
    for error in errors:
        yield Check("environment", Health.PROBLEM, error, "torch-neuronx env")
    if not errors:
        given = [row.name for row in variable_rows() if row.source.startswith("environment")]
        yield Check("environment", Health.OK, f"set: {', '.join(given)}" if given else "no variable is set")


def _plugins() -> Iterator[Check]:
    records, conflicts = inspect_plugins(manager())
    for conflict in conflicts:
        yield Check("plugins", Health.PROBLEM, conflict, "torch-neuronx plugins")
    skipped = [record for record in records if record.state is PluginState.SKIPPED]
    for record in skipped:
        if not any(record.reason in conflict for conflict in conflicts):
            yield Check("plugins", Health.PROBLEM, f"{record} was skipped: {record.reason}", "torch-neuronx plugins")
    if not skipped and not conflicts:
        loaded = [record.name for record in records if record.state is PluginState.LOADED]
        yield Check("plugins", Health.OK, ", ".join(loaded))


def _torch() -> Iterator[Check]:
    try:
        import torch
    except Exception as error:  # a torch that does not import may raise anything
        yield Check("torch", Health.PROBLEM, f"import torch: {type(error).__name__}: {error}", "Reinstall torch.")
    else:
        yield Check("torch", Health.OK, torch.__version__)


def _extension() -> Iterator[Check]:
    from torch_neuronx import _registration

    _registration.register()
    failure = _registration.failure()
    if failure is None:
        yield Check("device neuron", Health.OK, "registered with torch")
        return
    causes: list[str] = []
    error: BaseException | None = failure
    while error is not None:
        causes.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    yield Check("device neuron", Health.PROBLEM, "; caused by ".join(causes))


def _toolchain() -> Iterator[Check]:
    from torch_neuronx.runtimes.select import select_runtime

    compiler = installed.version("neuronx-cc")
    detail = compiler or "not installed; needed to compile for the chip, not for the emulator"
    yield Check("neuronx-cc", Health.OK if compiler else Health.NOTE, detail)
    for name, runtime in manager().runtimes().items():
        availability = runtime.available()
        health = Health.OK if availability.ok else Health.NOTE
        yield Check(f"runtime {name}", health, "available" if availability.ok else availability.reason)
    yield Check("runtime in use", Health.OK, select_runtime().name)


def _cores() -> Iterator[Check]:
    from torch_neuronx.runtimes.select import select_runtime

    layout = select_runtime().layout()
    numbers = ", ".join(str(core.index) for core in layout.logical_cores)
    memory = f"{layout.hbm_bytes_per_core / 2**30:.4g} GiB each"
    yield Check("cores", Health.OK, f"{layout.target.name}, LNC {layout.lnc}: logical cores {numbers}; {memory}")


def _verify() -> Iterator[Check]:
    import torch

    from torch_neuronx import _registration

    if _registration.failure() is not None or not torch.get_device_module("neuron").is_available():
        yield Check("torch.neuron.is_available()", Health.PROBLEM, "False; see the problems above")
        return
    device = torch.device("neuron")
    module = torch.get_device_module(device)
    yield Check("torch.neuron.is_available()", Health.OK, f"True, {module.device_count()} cores")
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(256, 256, generator=generator) for _ in range(2))
    expected = left @ right
    difference = (left.to(device) @ right.to(device)).cpu().sub(expected).abs().max().item()
    # Of a sum of 256 products of unit normals; the chip may round operands to bfloat16.
    agrees = difference <= 2e-2 * expected.abs().max().item()
    yield Check(
        "matrix multiplication",
        Health.OK if agrees else Health.PROBLEM,
        f"256x256 float32, largest difference from the CPU {difference:.3g}",
        "" if agrees else "Report this with the whole output.",
    )
