"""The command ``torch-neuronx``, as a fresh process runs it."""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from torch_neuronx import config
from torch_neuronx.cli.operators import search
from torch_neuronx.op_status import OpRecord, OpStatus
from torch_neuronx.ops.statuses import load_shipped_table

from . import distributions

NO_TORCH = """
import sys

sys.modules["torch"] = None
from torch_neuronx.cli import main

main()
"""


def run(*arguments: str, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command without torch (but for ``doctor``), seeing the distributions in ``path``."""
    start = ["-m", "torch_neuronx.cli"] if "doctor" in arguments else ["-c", NO_TORCH]
    folders = os.pathsep.join([*([] if path is None else [str(path)]), *filter(None, sys.path)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_NEURONX", "NEURON"))}
    environ = kept | {"PYTHONPATH": folders, "COLUMNS": "80"} | variables
    return subprocess.run(
        [sys.executable, "-W", "error", *start, *arguments],
        env=environ, check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def ask(*arguments: str, path: Path | None = None, **variables: str) -> tuple[Any, int]:
    done = run(*arguments, "--json", path=path, **variables)
    return json.loads(done.stdout), done.returncode


def add_distribution(folder: Path, name: str, group: str, source: str, version: str = "1.0") -> None:
    module = name.replace("-", "_")
    distributions.install(folder, name, {name: f"{module}"}, {module: textwrap.dedent(source)}, group, version)


@pytest.mark.parametrize("arguments", [["--help"], ["env", "--help"], ["ops", "--help"], ["doctor", "--help"]])
def test_help(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert "Usage" in done.stdout
    assert not done.stderr


def test_wrong_use_is_2() -> None:
    done = run("diagnose")
    assert done.returncode == 2
    assert "diagnose" in done.stderr


class TestEnv:
    def test_shows_every_variable(self) -> None:
        rows, code = ask("env", NEURON_RT_NUM_CORES="2", TORCH_NEURONX_DISABLE_NEFF_CACHE="yes")
        assert code == 0
        shown = {row["name"]: row for row in rows}
        assert list(shown) == list(config.VARIABLES)
        assert (shown["NEURON_RT_NUM_CORES"]["value"], shown["NEURON_RT_NUM_CORES"]["source"]) == ("2", "environment")
        cache = shown["TORCH_NEURONX_NEFF_DISABLE_CACHE"]
        assert (cache["value"], cache["source"]) == ("1", "environment (TORCH_NEURONX_DISABLE_NEFF_CACHE)")
        level = shown["TORCH_NEURONX_LOG_LEVEL"]
        assert (level["value"], level["default"], level["source"]) == ("0", "0", "default")

    def test_a_value_that_is_not_accepted_is_shown_as_an_error(self) -> None:
        rows, code = ask("env", TORCH_NEURONX_STRICT_INT64="on", NEURON_RT_NUM_CORES="1")
        assert code == 1
        errors = {row["name"]: row["error"] for row in rows if row["error"]}
        assert set(errors) == {"TORCH_NEURONX_STRICT_INT64"}
        assert "'on'" in errors["TORCH_NEURONX_STRICT_INT64"]
        text = run("env", TORCH_NEURONX_STRICT_INT64="on")
        assert text.returncode == 1
        assert "TORCH_NEURONX_STRICT_INT64\t\t0\terror" in text.stdout
        assert "Use 1, true or yes" in text.stdout

    def test_columns_for_other_programs_are_never_cut(self) -> None:
        lines = run("env", TORCH_NEURONX_DEBUG_DIR="/" + "x" * 300).stdout.splitlines()
        assert lines[0].split("\t") == ["name", "value", "default", "source"]
        assert len(lines) == 1 + len(config.VARIABLES)
        assert any("x" * 300 in line for line in lines)


class TestOps:
    def test_a_part_of_a_name(self) -> None:
        rows, code = ask("ops", "softmax")
        assert code == 0
        assert rows
        assert all("softmax" in row["name"] for row in rows)
        table = load_shipped_table()
        assert len(rows) == sum("softmax" in name for name in table)

    def test_a_status(self) -> None:
        rows, _ = ask("ops", "aten::*complex*", "--status", "fallback")
        assert {row["status"] for row in rows} == {"fallback"}
        assert "aten::complex" in {row["name"] for row in rows}
        assert all(row["reason"] for row in rows)

    def test_all(self) -> None:
        lines = run("ops").stdout.splitlines()
        assert len(lines) == 1 + len(load_shipped_table())

    def test_nothing_found(self) -> None:
        done = run("ops", "no_such_operator", "--status", "native")
        assert done.returncode == 1
        assert "No operator matches 'no_such_operator' with status native." in done.stderr
        assert ask("ops", "no_such_operator") == ([], 1)

    def test_an_error_of_the_project_is_one_line(self) -> None:
        done = run("ops", NEURON_PLATFORM_TARGET_OVERRIDE="trn9")
        assert done.returncode == 1
        assert done.stderr.startswith("ConfigurationError: There is no target 'trn9'.")
        assert len(done.stderr.splitlines()) == 1

    def test_a_status_that_is_none(self) -> None:
        assert run("ops", "--status", "great").returncode == 2

    def test_search(self) -> None:
        table = {name: OpRecord(OpStatus.NATIVE) for name in ("aten::mm", "aten::addmm", "aten::mm.out")}
        assert list(search(table, "mm", None)) == ["aten::addmm", "aten::mm", "aten::mm.out"]
        assert list(search(table, "aten::mm*", None)) == ["aten::mm", "aten::mm.out"]
        assert list(search(table, "aten::m[mn]", None)) == ["aten::mm"]
        assert not search(table, "", OpStatus.FALLBACK)


class TestPlugins:
    def test_found_loaded_and_skipped(self, tmp_path: Path) -> None:
        add_distribution(tmp_path, "broken-one", "torch_neuronx.plugins", "raise ValueError('oh')")
        add_distribution(tmp_path, "silent", "torch_neuronx.plugins", "")
        done = run("plugins", path=tmp_path)
        assert done.returncode == 0
        assert not done.stderr
        rows = {line.split("\t")[0]: line.split("\t") for line in done.stdout.splitlines()}
        assert rows["builtin"][3] == "loaded"
        assert rows["broken-one"][1:4] == ["broken-one", "1.0", "skipped"]
        assert rows["broken-one"][5] == "ValueError: oh"
        assert "implements no hook" in rows["silent"][5]
        answer, _ = ask("plugins", path=tmp_path, TORCH_NEURONX_DISABLE_PLUGINS="silent")
        assert {plugin["name"]: plugin["state"] for plugin in answer["plugins"]}["silent"] == "disabled"


class TestSubcommands:
    APP = """
        import typer
        app = typer.Typer(help="Look after the lab.")

        @app.command()
        def count(number: int) -> None:
            print(number + 1)

        @app.callback()
        def main() -> None: ...
    """

    def add(self, folder: Path, name: str, source: str) -> None:
        module = name.replace("-", "_")
        modules = {module: textwrap.dedent(source)}
        distributions.install(folder, name, {name: f"{module}:app"}, modules, "torch_neuronx.cli")

    def test_an_installed_one_runs(self, tmp_path: Path) -> None:
        self.add(tmp_path, "lab", self.APP)
        done = run("lab", "count", "41", path=tmp_path)
        assert done.stdout == "42\n", done.stderr
        assert "Look after the lab." in run("lab", "--help", path=tmp_path).stdout

    def test_help_lists_them_and_imports_none(self, tmp_path: Path) -> None:
        self.add(tmp_path, "lab", "raise AssertionError('imported')")
        done = run("--help", path=tmp_path)
        assert done.returncode == 0
        assert "Commands of lab." in done.stdout
        assert run("env", path=tmp_path).returncode == 0

    def test_one_that_cannot_be_loaded_is_named(self, tmp_path: Path) -> None:
        self.add(tmp_path, "lab", "raise ImportError('no lab here')")
        self.add(tmp_path, "no-app", "app = 3")
        done = run("lab", "count", path=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("The command 'lab' of lab cannot be loaded: ImportError: no lab here.")
        assert "is no typer app but 3" in run("no-app", path=tmp_path).stderr

    def test_the_commands_of_the_core_cannot_be_replaced(self, tmp_path: Path) -> None:
        self.add(tmp_path, "env", "raise AssertionError('imported')")
        assert run("env", path=tmp_path).returncode == 0


class TestDoctor:
    def checks(self, *arguments: str, path: Path | None = None, **variables: str) -> tuple[dict[str, Any], int]:
        answer, code = ask("doctor", *arguments, path=path, **variables)
        assert code == (0 if answer["ok"] else 1)
        assert answer["ok"] == all(check["health"] != "problem" for check in answer["checks"])
        return {check["name"]: check for check in answer["checks"]}, code

    def test_says_what_is_there(self) -> None:
        checks, _ = self.checks()
        assert checks["python"]["detail"].startswith(".".join(map(str, sys.version_info[:3])))
        assert checks["torch"]["health"] == "ok"
        assert checks["runtime in use"]["detail"] == "emulator"
        assert checks["cores"]["detail"] == "trn2, LNC 2: logical cores 0, 1, 2, 3; 24 GiB each"
        for extra in ("compile", "dist", "nki", "cache"):
            check = checks[f"torch-neuronx-{extra}"]
            assert check["health"] == "ok" or check["fix"] == f"pip install 'torch-neuronx[{extra}]'"

    def test_cores_follow_the_variables(self) -> None:
        checks, _ = self.checks(NEURON_RT_VISIBLE_CORES="1", TORCH_NEURONX_EMULATOR_HBM_BYTES="64MiB")
        assert checks["cores"]["detail"] == "trn2, LNC 2: logical cores 1; 0.0625 GiB each"

    def test_problems_are_found_together(self, tmp_path: Path) -> None:
        add_distribution(tmp_path, "torch-xla", "nothing", "", "2.9.0")
        add_distribution(tmp_path, "libneuronxla", "nothing", "", "2.2")
        add_distribution(tmp_path, "broken", "torch_neuronx.plugins", "raise ValueError('oh')")
        checks, code = self.checks(path=tmp_path, TORCH_NEURONX_TRACK_OPS="perhaps", NEURON_RT_VISIBLE_CORES="9")
        assert code == 1
        problems = {name: check for name, check in checks.items() if check["health"] == "problem"}
        assert {"torch-xla", "libneuronxla", "environment", "plugins", "cores"} <= set(problems)
        assert "pip uninstall torch-xla" in problems["torch-xla"]["fix"]
        assert "TORCH_NEURONX_TRACK_OPS" in problems["environment"]["detail"]
        assert "'broken' (broken 1.0) was skipped: ValueError: oh" in problems["plugins"]["detail"]
        assert "asks for core 9" in problems["cores"]["detail"]

    def test_versions_that_do_not_fit(self, tmp_path: Path) -> None:
        distributions.install(tmp_path, "torch-neuronx-nki", {}, {}, "nothing", "0.0.1")
        metadata = tmp_path / "torch_neuronx_nki-0.0.1.dist-info" / "METADATA"
        with metadata.open("a") as file:
            file.write("Requires-Dist: torch>=99\nRequires-Dist: not-there-at-all>=1\nRequires-Dist: pluggy\n")
            file.write("Requires-Dist: other-thing; extra == 'more'\n")
        checks, code = self.checks(path=tmp_path)
        assert code == 1
        check = checks["torch-neuronx-nki"]
        assert check["health"] == "problem"
        assert "does not fit >=99; not-there-at-all is missing" in check["detail"]
        assert check["fix"] == "pip install 'torch>=99' 'not-there-at-all>=1'"

    def test_a_torch_that_does_not_import(self, tmp_path: Path) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libtorch.so: cannot open')")
        checks, code = self.checks(path=tmp_path)
        assert code == 1
        assert "OSError: libtorch.so: cannot open" in checks["torch"]["detail"]
        assert checks["cores"]["health"] == "ok"

    def test_verify_compares_with_the_cpu(self) -> None:
        checks, code = self.checks("--verify")
        if importlib.util.find_spec("torch_neuronx._C") is None:
            assert code == 1
            assert checks["device neuron"]["detail"].startswith("BrokenInstallError: ")
            assert checks["torch.neuron.is_available()"]["health"] == "problem"
        else:
            assert checks["device neuron"]["health"] == "ok"
            assert checks["torch.neuron.is_available()"]["detail"] == "True, 4 cores"
            assert checks["matrix multiplication"]["health"] == "ok"
