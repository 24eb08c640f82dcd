"""The build hook `neuron-extension`, used as a third party uses it: against the installed core."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from environments import Environment, run_here

PYPROJECT = """
[build-system]
requires = ["hatchling", "ninja", "torch", "torch-neuronx"]
build-backend = "hatchling.build"

[project]
name = "third-party"
version = "1.0"
dependencies = ["torch-neuronx"]

[tool.hatch.build.targets.wheel]
packages = ["src/third_party"]
dev-mode-dirs = ["src"]

[tool.hatch.build.hooks.neuron-extension]
package = "src/third_party"
generate = "csrc/generate.py"
headers = ["csrc/answer.h"]

[[tool.hatch.build.hooks.neuron-extension.libraries]]
name = "third_party"
sources = ["csrc/answer.cpp"]
generated = ["*.cpp"]
include-dirs = ["csrc"]
links = ["c10"]

[[tool.hatch.build.hooks.neuron-extension.extensions]]
name = "_C"
sources = ["csrc/bindings/*.cpp"]
include-dirs = ["csrc"]
links = ["torch", "torch_cpu", "c10", "torch_python", "torch_neuronx", "third_party"]
"""

SOURCES = {
    "csrc/answer.h": "#pragma once\nint answer();\nint generated();\n",
    "csrc/answer.cpp": '#include "answer.h"\nint answer() { return generated() + 1; }\n',
    "csrc/generate.py": """
        import argparse, pathlib
        parser = argparse.ArgumentParser()
        parser.add_argument("--output", type=pathlib.Path)
        text = '#include "answer.h"\\nint generated() { return 41; }\\n'
        (parser.parse_args().output / "generated.cpp").write_text(text)
        """,
    "csrc/bindings/bindings.cpp": """
        @headers@
        #include "answer.h"
        #include <torch/csrc/utils/pybind.h>

        PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("answer", &answer); }
        """,
    "src/third_party/__init__.py": "",
}


def write_project(root: Path, headers: list[str]) -> Path:
    includes = "\n".join(f"#include <torch_neuronx/{header}>" for header in headers)
    for name, text in SOURCES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).replace("@headers@", includes), encoding="utf-8")
    (root / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def exported_headers() -> list[str]:
    spec = importlib.util.find_spec("torch_neuronx")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "include" / "torch_neuronx"
    return sorted(header.name for header in folder.glob("*.h"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, exported_headers: list[str]) -> Path:
    """A project that includes every header the core exports, built once."""
    root = write_project(tmp_path_factory.mktemp("third party"), exported_headers)  # a blank in the path, on purpose
    result = build(root)
    assert result.returncode == 0, result.stderr
    return root


@pytest.fixture
def small_project(tmp_path: Path) -> Path:
    return write_project(tmp_path, [])


def build(root: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_neuronx.build", str(root)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a build that was refused."""
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    return last


def test_builds_in_place_against_the_core(project: Path) -> None:
    package = project / "src" / "third_party"
    assert (package / "lib" / "libthird_party.so").is_file()
    assert (package / "include" / "third_party" / "answer.h").is_file()
    assert (project / "compile_commands.json").is_file()
    program = "import torch, third_party._C as c, third_party._build_info as b; print(c.answer(), b.TORCH_VERSION)"
    path = os.pathsep.join([str(project / "src"), os.environ.get("PYTHONPATH", "")])
    output = run_here("-c", program, PYTHONPATH=path)
    import torch

    assert output.split() == ["42", torch.__version__]


def test_second_build_does_nothing(project: Path) -> None:
    result = build(project)
    assert "no work to do" in result.stderr
    assert result.stdout == ""


def test_only_what_changed_is_compiled(project: Path) -> None:
    source = project / "csrc" / "answer.cpp"
    before = source.read_text(encoding="utf-8")
    source.write_text(before.replace("+ 1", "+ 2"), encoding="utf-8")
    try:
        result = build(project)
        assert "compile csrc/answer.cpp" in result.stderr
        assert "bindings.cpp" not in result.stderr
        assert "generated.cpp" not in result.stderr
    finally:
        source.write_text(before, encoding="utf-8")
        build(project)


def test_sources_share_translation_units(tmp_path: Path) -> None:
    root = write_project(tmp_path, [])
    edit(root / "pyproject.toml", 'sources = ["csrc/answer.cpp"]', 'sources = ["csrc/*.cpp"]\nunits = 2')
    for name in ("one", "two", "three"):
        (root / "csrc" / f"{name}.cpp").write_text(f"int {name}() {{ return 1; }}\n", encoding="utf-8")
    first = build(root)
    assert first.returncode == 0, first.stderr
    compiled = [line.split("compile ")[1] for line in first.stderr.splitlines() if "compile " in line]
    assert sorted(compiled) == [
        "csrc/bindings/bindings.cpp",
        "generated.cpp",
        "third_party/unit_0.cpp",
        "third_party/unit_1.cpp",
    ]
    (root / "csrc" / "two.cpp").write_text("int two() { return 2; }\n", encoding="utf-8")
    again = build(root).stderr
    assert sum("compile " in line for line in again.splitlines()) == 1
    (root / "csrc" / "two.cpp").unlink()
    assert build(root).returncode == 0


def test_hatchling_finds_the_hook_and_tags_the_wheel(project: Path, tmp_path: Path) -> None:
    run_here("-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path), cwd=project)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "linux" in wheel.name
    assert "third_party/lib/libthird_party.so" in names
    assert "third_party/include/third_party/answer.h" in names
    assert any(name.startswith("third_party/_C.") for name in names)


def test_editable_install_builds_in_place(project: Path, tmp_path: Path) -> None:
    for path in (project / "src" / "third_party").rglob("*.so"):
        path.unlink()
    program = f"import hatchling.build; hatchling.build.build_editable({str(tmp_path)!r})"
    run_here("-c", program, cwd=project)
    (wheel,) = tmp_path.glob("*.whl")
    assert [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")] == []
    assert list((project / "src" / "third_party").glob("_C.*.so"))


def test_missing_compiler(small_project: Path) -> None:
    assert "needs a C++20 compiler and none was found (tried no-such-compiler)" in refusal(
        build(small_project, CXX="no-such-compiler")
    )


def test_missing_ninja(small_project: Path, alone: Environment) -> None:
    result = alone.run("python", "-m", "torch_neuronx.build", str(small_project), check=False)
    assert "`pip install ninja`" in refusal(result)


def test_missing_torch(small_project: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch is gone')", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    sentence = refusal(build(small_project, PYTHONPATH=path))
    assert "torch cannot be imported there (ImportError: libtorch is gone)" in sentence


def test_another_torch_than_declared(small_project: Path) -> None:
    edit(small_project / "pyproject.toml", 'dependencies = ["torch-neuronx"]', 'dependencies = ["torch>=2.99"]')
    sentence = refusal(build(small_project))
    assert "third-party is built for torch >=2.99, but torch 2." in sentence


def test_another_core_than_declared(small_project: Path) -> None:
    edit(small_project / "pyproject.toml", 'dependencies = ["torch-neuronx"]', 'dependencies = ["torch-neuronx==1.0"]')
    assert "third-party is built for torch-neuronx ==1.0, but torch-neuronx 2." in refusal(build(small_project))


def test_front_ends_see_the_sentence_and_no_traceback(small_project: Path, tmp_path: Path) -> None:
    edit(small_project / "pyproject.toml", 'dependencies = ["torch-neuronx"]', 'dependencies = ["torch>=2.99"]')
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            str(small_project),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    output = result.stdout + result.stderr
    assert result.returncode != 0
    assert "third-party is built for torch >=2.99" in output
    assert "Traceback" not in output


def test_source_that_does_not_compile(small_project: Path) -> None:
    (small_project / "csrc" / "answer.cpp").write_text("int answer() { return missing; }\n", encoding="utf-8")
    result = build(small_project)
    assert "third-party did not compile with" in refusal(result)
    assert "missing" in result.stderr


def test_symbol_that_no_library_has(small_project: Path) -> None:
    (small_project / "csrc" / "answer.cpp").write_text("int nowhere();\nint answer() { return nowhere(); }\n")
    result = build(small_project)
    assert "third-party did not compile" in refusal(result)
    assert "nowhere" in result.stderr


def test_generator_that_fails(small_project: Path) -> None:
    (small_project / "csrc" / "generate.py").write_text("raise SystemExit('table is empty')\n", encoding="utf-8")
    result = build(small_project)
    assert "the generator csrc/generate.py failed" in refusal(result)
    assert "table is empty" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('package = "src/third_party"', 'packages = "src/third_party"', "has the unknown key `packages`"),
        ('package = "src/third_party"', "package = 3", "needs `package` as a string, not 3"),
        ('sources = ["csrc/answer.cpp"]', 'sources = "csrc/answer.cpp"', "needs `sources` as a list of str"),
        ('sources = ["csrc/answer.cpp"]', 'sources = ["csrc/other.cpp"]', "no source of `third_party` matches"),
        (
            'sources = ["csrc/answer.cpp"]',
            'sources = ["csrc/answer.cpp"]\nunits = 0',
            "needs `units` as a positive integer",
        ),
        ('headers = ["csrc/answer.h"]', 'headers = ["csrc/other.h"]', "no header of third-party matches"),
        ('include-dirs = ["csrc"]', 'include-dirs = ["{no_such_module}/include"]', "`no_such_module` is not installed"),
        ('generate = "csrc/generate.py"', 'generate = "csrc/no.py"', "does not exist"),
    ],
)
def test_table_that_is_wrong(small_project: Path, old: str, new: str, sentence: str) -> None:
    edit(small_project / "pyproject.toml", old, new)
    shutil.rmtree(small_project / "csrc" / "bindings")
    keep = (small_project / "pyproject.toml").read_text(encoding="utf-8")
    library_only = keep.split("[[tool.hatch.build.hooks.neuron-extension.extensions]]")[0]
    (small_project / "pyproject.toml").write_text(library_only, encoding="utf-8")
    assert sentence in refusal(build(small_project))


def test_folder_without_a_project(tmp_path: Path) -> None:
    assert "has no pyproject.toml" in refusal(build(tmp_path))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
