"""The registry of environment variables."""

import contextlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_neuronx import config
from torch_neuronx.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[4]
VARIABLES = list(config.VARIABLES.values())

# For each variable: texts with the values that they mean, and texts that are not accepted.
BOOLEANS: tuple[list[tuple[str, object]], list[str]] = (
    [("1", True), ("true", True), ("YES", True), ("True", True), ("0", False), ("false", False), ("No", False)],
    ["", "on", "off", "2", " 1", "y", "enabled"],
)
CASES: dict[str, tuple[list[tuple[str, object]], list[str]]] = {
    "NEURON_PLATFORM_TARGET_OVERRIDE": ([("trn3", "trn3"), (" trn2 ", "trn2")], ["", "  "]),
    "NEURON_RT_VISIBLE_CORES": (
        [("0", (0,)), ("0,2", (0, 2)), ("0-3", (0, 1, 2, 3)), ("3,0-1", (3, 0, 1)), ("1 - 2", (1, 2))],
        ["", "a", "-1", "3-1", "0,0", "0-2,1", "0,", "0..3", "0-9999999999", "²"],
    ),
    "NEURON_RT_NUM_CORES": ([("0", 0), ("4", 4)], ["", "-1", "four", "1.5", "1_0", "٣"]),
    "NEURON_LOGICAL_NC_CONFIG": ([("1", 1), ("2", 2)], ["0", "3", ""]),
    "TORCH_NEURONX_SEGMENT_ALLOCATOR_CONFIG": ([("", ""), ("kMaxSplitSizeBytes=1", "kMaxSplitSizeBytes=1")], []),
    "TORCH_NEURONX_RUNTIME": ([("auto", "auto"), ("nrt", "nrt")], [""]),
    "TORCH_NEURONX_EMULATOR_HBM_BYTES": (
        [("1", 1), ("67108864", 2**26), ("64MiB", 2**26), ("64 mib", 2**26), ("24GIB", 24 * 2**30), ("2TiB", 2**41)],
        ["", "0", "64MB", "64M", "-1", "1.5GiB", "GiB"],
    ),
    "LOCAL_RANK": ([("0", 0), ("12", 12)], ["", "-1", "one"]),
    "LOCAL_WORLD_SIZE": ([("1", 1), ("64", 64)], ["", "0", "-1"]),
    "WORLD_SIZE": ([("1", 1), ("4096", 4096)], ["", "0", "-1"]),
    "TORCH_NEURONX_DEBUG_DIR": ([("/a/b", Path("/a/b"))], [""]),
    "TORCH_NEURONX_COMPILE_WORKER_MEMORY": ([("8GiB", 2**33)], ["", "0", "8G"]),
    "NEURON_CC_FLAGS": ([("", ""), ("-O1 --lnc 2", "-O1 --lnc 2")], []),
    "TORCH_NEURONX_NEFF_CACHE_DIR": ([("relative", "relative"), ("s3://bucket/neff", "s3://bucket/neff")], [""]),
    "TORCH_NEURONX_HLO_CACHE_DIR": ([("/a", "/a")], [""]),
    "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR": ([("/a", Path("/a"))], [""]),
    "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": ([("0", 0), ("60", 60)], ["", "-1", "1s"]),
    # the cache's own, whose values it checks itself
    "TORCH_NEURONX_CACHE_TRUST": ([("", ""), ("ci, 1000", "ci, 1000")], []),
    "TORCH_NEURONX_CACHE_SIGNING_KEY_FILE": ([("", ""), ("/a", "/a")], []),
    "TORCH_NEURONX_CACHE_MAX_SIZE": ([("", ""), ("10G", "10G")], []),
    "TORCH_NEURONX_CACHE_MAX_AGE": ([("", ""), ("30d", "30d")], []),
    "TORCH_NEURONX_CACHE_MEMORY_SIZE": ([("64M", "64M"), ("0", "0")], []),
    "TORCH_NEURONX_ENABLED_METRIC_TABLES": ([("", ()), ("graph_stats", ("graph_stats",)), ("a, b,", ("a", "b"))], []),
    "TORCH_NEURONX_METRICS_DIR": ([("/a", Path("/a"))], [""]),
    "TORCH_NEURONX_LOG_LEVEL": ([("0", 0), ("3", 3)], ["4", "-1", "debug", ""]),
    "TORCH_NEURONX_NKI_VERIFY": ([("strict", "strict"), ("warn", "warn"), ("off", "off")], ["", "error", "0"]),
    "TORCH_NEURONX_DISABLE_PLUGINS": ([("", ()), ("all", ("all",)), ("a,b", ("a", "b"))], []),
}


def cases(variable: config.Variable[object]) -> tuple[list[tuple[str, object]], list[str]]:
    return BOOLEANS if variable.type is config.BOOL else CASES[variable.name]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
class TestEveryVariable:
    def test_default(self, variable: config.Variable[object]) -> None:
        assert config.get(variable, {}) == config.default(variable)
        assert config.source(variable, {}) is config.Source.DEFAULT
        assert config.get(variable, {}) == config.get(variable, {})

    def test_accepted_texts(self, variable: config.Variable[object]) -> None:
        for text, value in cases(variable)[0]:
            for spelling in (variable.name, *variable.aliases):
                setting = config.read(variable, {spelling: text})
                assert (setting.value, setting.source, setting.spelling) == (value, "environment", spelling)
                assert type(setting.value) is type(value)

    def test_other_texts_raise_and_say_what_is_accepted(self, variable: config.Variable[object]) -> None:
        for text in cases(variable)[1]:
            for spelling in (variable.name, *variable.aliases):
                with pytest.raises(ConfigurationError) as caught:
                    config.get(variable, {spelling: text})
                message = str(caught.value)
                assert spelling in message
                assert repr(text) in message
                assert variable.type.accepts in message

    def test_is_read_when_asked(self, variable: config.Variable[object], monkeypatch: pytest.MonkeyPatch) -> None:
        for text, value in cases(variable)[0]:
            monkeypatch.setenv(variable.name, text)
            assert config.get(variable.name) == value

    def test_what_is_shown_is_accepted_back(self, variable: config.Variable[object]) -> None:
        for _, value in cases(variable)[0]:
            assert config.get(variable, {variable.name: config.show(value)}) == value

    def test_is_described(self, variable: config.Variable[object]) -> None:
        assert variable.summary.endswith(".")
        assert variable.summary[0].isupper()


def test_names_and_aliases_are_unique() -> None:
    names = [name for variable in VARIABLES for name in (variable.name, *variable.aliases)]
    assert len(set(names)) == len(names)


def test_the_name_wins_over_an_alias() -> None:
    environ = {"TORCH_NEURONX_DISABLE_NEFF_CACHE": "1", "TORCH_NEURONX_NEFF_DISABLE_CACHE": "0"}
    assert config.get(config.NEFF_DISABLE_CACHE, environ) is False
    assert config.get("TORCH_NEURONX_DISABLE_NEFF_CACHE", environ) is False


def test_an_undeclared_name_raises() -> None:
    with pytest.raises(ConfigurationError, match="TORCH_NEURONX_NO_SUCH_THING"):
        config.get("TORCH_NEURONX_NO_SUCH_THING")


def test_the_debug_directory_is_one_per_process() -> None:
    directory = config.get(config.DEBUG_DIR, {})
    assert directory.parent == Path("/tmp")
    assert directory.name.startswith("neuron_backend_")
    assert len(directory.name) > len("neuron_backend_")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_is_a_value_or_a_configuration_error(text: str) -> None:
    for variable in VARIABLES:
        with contextlib.suppress(ConfigurationError):
            config.get(variable, {variable.name: text})


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "variables.md").read_text(encoding="utf-8")
    assert page == generator().variables_page(), "run: python tools/generate_docs.py"


def test_readers_are_those_that_read() -> None:
    """A distribution that a variable names has code that reads it, and one that reads it is named."""
    names = {name: value.name for name, value in vars(config).items() if isinstance(value, config.Variable)}
    read: dict[str, set[str]] = {}
    for folder in (ROOT / "packages").iterdir():
        sources = [
            path.read_text(encoding="utf-8") for path in (folder / "src").rglob("*.py") if path.name != "config.py"
        ]
        code = "\n".join(sources)
        distribution = f"torch-neuronx-{folder.name.removeprefix('neuron-')}".removesuffix("-core")
        read[distribution] = {names[name] for name in re.findall(r"config\.(?:get|read)\(\s*config\.(\w+)", code)}
        if "torch_neuronx import" not in code:  # the cache knows nothing of the core, so it spells the names
            read[distribution] |= {name for name in config.VARIABLES if f'"{name}"' in code}
    for variable in VARIABLES:
        readers = {distribution for distribution, variables in read.items() if variable.name in variables}
        assert set(variable.honoured_by) - {"torch"} == readers, variable.name
