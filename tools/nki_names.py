"""Make docs/nki_names.md: every name of the kernel language, whether it is here and tested, and what it checks.

    python tools/nki_names.py [--check]

The names are in tools/nki_names.toml. Whether a name is here is asked of the package; whether it is tested, of the
tests' sources; which rules it checks, of the functions that prepare instructions.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "packages" / "neuron-nki"
PAGE = ROOT / "docs" / "nki_names.md"

# methods of torch_neuronx_nki.checks.Checker, and the rules that they enforce
RULES_OF_METHODS = {
    "tensor": ["tensor-expected"],
    "buffer": ["buffer"],
    "dtype": ["dtype"],
    "not_packed": ["dtype"],
    "free_limit": ["free-limit"],
    "same_partitions": ["partition-match"],
    "same_elements": ["partition-match", "element-match"],
    "same_dtype": ["dtype-match"],
    "shape": ["shape-match"],
    "not_both_psum": ["psum-inputs"],
    "per_partition": ["operand-value", "shape-match", "dtype"],
    "engine": ["engine"],
    "no_psum_on_gpsimd": ["engine"],
    "generation_from": ["generation"],
    "language_from": ["language"],
    "operator": ["operator"],
    "bit_operands": ["dtype"],
    "same_kind": ["operator-mix"],
    "option": ["option"],
    "priority": ["generation", "option"],
}
EVERY_INSTRUCTION = ["partition-start", "dma-indirect"]


def modules() -> dict[str, object]:
    """Return what each section of the table asks for names."""
    from torch_neuronx_nki import collectives, isa, language
    from torch_neuronx_nki.tensors import NkiTensor

    return {"tensor": NkiTensor, "nl": language, "nl.tile_size": language.tile_size, "nisa": isa, "ncc": collectives}


def is_here(owner: object, name: str) -> bool:
    """Whether ``owner`` has ``name``; slots and properties count."""
    return hasattr(owner, name) or name in getattr(owner, "__slots__", ())


def tested_in(section: str, name: str, sources: dict[str, str]) -> list[str]:
    """Return the test files that use ``name``."""
    prefix = {"tensor": r"\.", "nl.tile_size": r"size\."}.get(section, rf"\b{section}\.")
    pattern = re.compile(rf"{prefix}{name}\b")
    quoted = re.compile(rf"[\"']{name}[\"']")
    return [
        file
        for file, text in sources.items()
        if pattern.search(text) or (section in ("nl", "ncc") and quoted.search(text))
    ]


def rules() -> dict[str, list[str]]:
    """Return the rules that each instruction checks, from the sources of the functions that prepare them."""
    found: dict[str, set[str]] = {}
    helpers: dict[str, set[str]] = {}
    for path in [*sorted((PACKAGE / "src/torch_neuronx_nki/isa").glob("*.py")), *_collective_sources()]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                helpers.setdefault(node.name, set()).update(_rules_in(node))
    calls = _calls()
    for name in list(helpers):
        reached, queue = set(), [name]
        while queue:
            current = queue.pop()
            if current not in reached:
                reached.add(current)
                queue += [callee for callee in calls.get(current, ()) if callee in helpers]
        found[name] = set().union(*(helpers[callee] for callee in reached))
    return {name.lstrip("_"): sorted(found[name] | found.get(name.lstrip("_"), set())) for name in sorted(found)}


def _collective_sources() -> Iterator[Path]:
    yield PACKAGE / "src/torch_neuronx_nki/collectives.py"


def _calls() -> dict[str, set[str]]:
    calls: dict[str, set[str]] = {}
    for path in [*sorted((PACKAGE / "src/torch_neuronx_nki/isa").glob("*.py")), *_collective_sources()]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and inner.id != node.name:
                        calls.setdefault(node.name, set()).add(inner.id)
    return calls


def _rules_in(node: ast.AST) -> set[str]:
    result: set[str] = set()
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Call):
            continue
        function = inner.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = getattr(function, "value", None)
        checks = (isinstance(owner, ast.Name) and owner.id == "check") or (
            isinstance(owner, ast.Attribute) and owner.attr == "check"
        )
        if checks:
            result.update(RULES_OF_METHODS.get(name, []))
        if name in ("fail", "violation") and inner.args and isinstance(inner.args[0], ast.Constant):
            result.add(str(inner.args[0].value))
    return result


def rows() -> Iterator[tuple[str, str, bool, list[str], list[str]]]:
    """Yield section, name, whether it is here, test files, and rules."""
    names = tomllib.loads((ROOT / "tools/nki_names.toml").read_text(encoding="utf-8"))
    sources = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted((PACKAGE / "tests").glob("*.py"))
        if path.name != "test_names.py"
    }
    checked = rules()
    owners = modules()
    for section, entries in names.items():
        for name in entries["names"]:
            here = is_here(owners[section], name)
            own = checked.get(name, []) if section in ("nisa", "ncc") else []
            yield section, name, here, tested_in(section, name, sources), own


TITLES = {
    "tensor": "Members of tensors",
    "nl": "nki.language",
    "nl.tile_size": "nki.language.tile_size",
    "nisa": "nki.isa",
    "ncc": "nki.collectives",
}


def page() -> str:
    """Return the text of docs/nki_names.md."""
    lines = [
        "# Names of the kernel language",
        "",
        "<!-- made by tools/nki_names.py -->",
        "",
        f"Every instruction also checks {', '.join(f'`{rule}`' for rule in EVERY_INSTRUCTION)}.",
        "The last table says what each rule asks; the error names its rule: `NkiValidationError.rule`.",
    ]
    table = list(rows())
    for section, title in TITLES.items():
        mine = [row for row in table if row[0] == section]
        here = sum(row[2] for row in mine)
        tested = sum(bool(row[3]) for row in mine)
        lines += ["", f"## {title}", "", f"{len(mine)} names, {here} here, {tested} named in tests.", ""]
        with_rules = section in ("nisa", "ncc")
        lines += [
            "| name | here | tests |" + (" checks |" if with_rules else ""),
            "|---|---|---|" + "---|" * with_rules,
        ]
        for _, name, is_there, files, own in mine:
            line = f"| `{name}` | {'yes' if is_there else 'no'} | {'yes' if files else 'no'} |"
            lines.append(line + (f" {', '.join(own)} |" if with_rules else ""))
    from torch_neuronx_nki.rules import RULES

    lines += ["", "## Rules", "", "| rule | asks |", "|---|---|"]
    lines += [f"| `{rule.id}` | {rule.says} |" for rule in RULES.values()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the page is not current")
    text = page()
    if parser.parse_args().check:
        if PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} is not current. Run: python tools/nki_names.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
