from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from torch_neuronx_cache import Cache, CacheKey, Settings
from torch_neuronx_cache.cli import app

KeyOf = Callable[..., CacheKey]


@pytest.fixture
def filled(cache: Cache, settings: Settings, key_of: KeyOf, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Three entries, whose holds were released, in the store that the environment configures."""
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", settings.neff_url)
    monkeypatch.setenv("TORCH_NEURONX_HLO_CACHE_DIR", settings.hlo_url)
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", settings.local_directory)
    for number in range(3):
        cache.put(key_of(number, compiler=f"emulator 0.{number}"), bytes(1000 * number), {"graph": f"graph_{number}"})
        time.sleep(0.01)
    cache.close()
    return cache


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status, result.output
    return result.output


def run_json(*arguments: str, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", status=status))


@pytest.mark.usefixtures("filled")
def test_ls_lists_the_latest_first(key_of: KeyOf) -> None:
    lines = run("ls").splitlines()
    assert lines[0].split() == ["key", "graph", "size", "target", "compiler", "age", "hits"]
    first = key_of(2, compiler="emulator 0.2").digest[:12]
    assert lines[1].split()[:8] == [first, "graph_2", "2.7", "KiB", "trn2", "emulator", "0.2", "0"]
    assert [line.split()[1] for line in lines[1:]] == ["graph_2", "graph_1", "graph_0"]
    listed = run_json("ls", "--limit", "1")
    assert [(entry["graph"], entry["compiler"], entry["hits"]) for entry in listed] == [("graph_2", "emulator 0.2", 0)]
    assert run_json("ls", "--store", "hlo") == []


def test_hits_of_other_processes_are_shown(filled: Cache, settings: Settings, key_of: KeyOf) -> None:
    reader = Cache.open(settings.neff_url, settings)
    reader.get(key_of(1, compiler="emulator 0.1"))
    reader.close()
    assert {entry["graph"]: entry["hits"] for entry in run_json("ls")} == {"graph_0": 0, "graph_1": 1, "graph_2": 0}


@pytest.mark.usefixtures("filled")
def test_show_tells_all(key_of: KeyOf) -> None:
    key = key_of(1, compiler="emulator 0.1")
    text = run("show", key.digest[:8])
    for word in (key.digest, "good", "graph_1", f"process {os.getpid()}", '{"auto_cast":"none","opt_level":1}', "trn2"):
        assert word in text
    (report,) = run_json("show", "graph_1")
    assert report["parts"][0] == {
        "name": "target",
        "form": "text",
        "digest": key["target"].digest,
        "size": 4,
        "value": "trn2",
    }
    assert "neither a key that starts with 'nope' nor a graph" in run("show", "nope", status=2)


@pytest.mark.usefixtures("filled")
def test_why_compares_with_the_nearest_older_entry() -> None:
    assert "is the first of its kind" in run("why", "graph_0")
    assert "compiler: emulator 0.1 -> emulator 0.2" in run("why", "graph_2")
    (explanation,) = run_json("why", "graph_1")
    assert explanation["nearest_graph"] == "graph_0"
    assert [difference["part"] for difference in explanation["differences"]] == ["compiler", "stablehlo"]
    assert explanation["differences"][0]["text"] == "compiler: emulator 0.0 -> emulator 0.1"


def test_verify_reports_and_repairs(filled: Cache, settings: Settings, key_of: KeyOf) -> None:
    assert run("verify") == "3 entries checked, 3 good, 0 bad.\n"
    digest = key_of(1, compiler="emulator 0.1").digest
    file = Path(settings.neff_url) / digest[:2] / digest
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{digest[:12]} corrupt: it is truncated" in run("verify", status=1)
    report = run_json("verify", status=1)
    assert (report["checked"], report["good"], report["bad"][0]["key"]) == (3, 2, digest)
    assert "Moved to" in run("verify", "--repair")
    assert run_json("verify") == {"checked": 2, "good": 2, "bad": []}


@pytest.mark.usefixtures("filled")
def test_prune_by_size_age_and_compiler() -> None:
    assert "say what to remove" in run("prune", status=2)
    assert "Would remove 1 entries" in run("prune", "--compiler", "emulator 0.0", "--dry-run")
    assert run_json("stats")["entries"] == 3
    assert "Removed 1 entries" in run("prune", "--compiler", "emulator 0.0")
    assert run_json("prune", "--older-than", "1d") == {"removed": [], "size": 0, "dry_run": False}
    assert len(run_json("prune", "--max-size", "3k")["removed"]) == 1
    assert [entry["graph"] for entry in run_json("ls")] == ["graph_2"]
    assert "is not a size" in run("prune", "--max-size", "lots", status=2)


def test_clear_asks_and_spares_what_is_held(filled: Cache, settings: Settings, key_of: KeyOf) -> None:
    assert CliRunner().invoke(app, ["clear"], input="n\n").exit_code == 1
    holder = Cache.open(settings.neff_url, settings)
    holder.get(key_of(1, compiler="emulator 0.1"))
    assert run("clear", "--yes") == "Removed 2 entries. 1 stay because running processes hold them.\n"
    assert run_json("clear", "--yes", "--force") == {"removed": 1, "held": 0}


def test_the_command_holds_nothing(filled: Cache, settings: Settings) -> None:
    run("ls")
    run("verify")
    assert list((Path(settings.neff_url) / "holds").iterdir()) == []


def test_stats_add_up(filled: Cache, settings: Settings) -> None:
    lines = [line.split() for line in run("stats").splitlines()]
    assert lines[:2] == [["store", f"file://{settings.neff_url}"], ["entries", "3"]]
    report = run_json("stats", "--store", settings.neff_url)
    assert report["entries"] == 3
    assert report["size"] == filled.stats().size


def test_a_directory_that_is_refused_is_a_message_and_status_2(filled: Cache, settings: Settings) -> None:
    Path(settings.neff_url).chmod(0o777)
    for command in ("ls", "verify", "stats"):
        assert "can be written by others" in run(command, status=2)


def test_a_bad_variable_is_a_message_and_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", "soon")
    assert "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT='soon'" in run("stats", status=2)


def test_the_core_can_take_it_in_as_a_command_of_its_own() -> None:
    core = typer.Typer()
    core.add_typer(app, name="cache")
    assert "Look into, check and prune" in CliRunner().invoke(core, ["cache", "--help"]).output


def test_the_script_runs_alone_without_torch_and_rich(settings: Settings) -> None:
    program = (
        "import sys; from torch_neuronx_cache.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'torch_neuronx', 'rich', 'filelock') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, "stats", "--store", settings.neff_url, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    report, _, modules = result.stdout.rpartition("}\n")
    assert json.loads(report + "}")["entries"] == 0
    assert modules.strip() == "[]"
