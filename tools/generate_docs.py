"""Writes the pages of ``docs/`` that are made from the code: ``variables.md`` and ``hooks.md``.

``python tools/generate_docs.py`` writes them; with ``--check`` it writes nothing and fails if one is out of date.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from torch_neuronx import config, hookspecs

DOCS = Path(__file__).resolve().parent.parent / "docs"


def variables_page() -> str:
    """Return ``docs/variables.md``."""
    return "\n".join(_variables_lines())


def _variables_lines() -> Iterator[str]:
    yield "# Environment variables"
    yield ""
    yield "<!-- Made by tools/generate_docs.py from torch_neuronx/config.py. Do not edit. -->"
    yield ""
    yield "`torch-neuronx env` shows each one's value in the current environment. A variable is read when it is needed;"
    yield "a text that is not accepted raises `ConfigurationError`, which names the variable."
    yield ""
    yield "*Read by* names the distribution that acts on the variable. *Nothing yet*: the text is checked, with no"
    yield "effect in this release."
    for kind in config.Kind:
        yield ""
        yield f"## {kind.value}"
        yield ""
        yield "| Variable | Type | Default | Effect | Read by |"
        yield "|---|---|---|---|---|"
        for variable in config.VARIABLES.values():
            if variable.kind is kind:
                yield _row(variable)
    yield ""
    yield "## Types"
    yield ""
    yield "| Type | Accepts |"
    yield "|---|---|"
    for name in sorted({variable.type.name for variable in config.VARIABLES.values()} - {"int", "str"}):
        accepts = next(v.type.accepts for v in config.VARIABLES.values() if v.type.name == name)
        yield f"| {name} | {accepts} |"
    yield "| int | a whole number in the range that the variable allows |"
    yield "| str | text |"
    yield ""


def _row(variable: config.Variable[object]) -> str:
    names = f"`{variable.name}`"
    if variable.aliases:
        names += " (also " + ", ".join(f"`{alias}`" for alias in variable.aliases) + ")"
    default = config.default_text(variable)
    default = f"`{default}`" if default and not default.startswith("(") else default or "(empty)"
    readers = ", ".join(f"`{reader}`" for reader in variable.honoured_by) or "*nothing yet*"
    return f"| {names} | {variable.type.name} | {default} | {variable.summary} | {readers} |"


def hooks_page() -> str:
    """Return ``docs/hooks.md``."""
    return "\n".join(_hooks_lines())


def _hooks_lines() -> Iterator[str]:
    yield "# Hooks"
    yield ""
    yield "<!-- Made by tools/generate_docs.py from torch_neuronx/hookspecs.py. Do not edit. -->"
    yield ""
    yield "What a plugin can do, one function each. [plugins.md](plugins.md) shows how to write and install one."
    for name, hook in hooks().items():
        doc = inspect.getdoc(hook) or ""
        summary, _, rest = doc.partition("\n")
        yield ""
        yield f"## `{name}`"
        yield ""
        yield "```python"
        yield f"def {name}{inspect.signature(hook)}".replace("'", "")  # annotations are strings
        yield "```"
        yield ""
        yield _markdown(f"{summary}\n{rest}").strip()
    yield ""


def hooks() -> dict[str, Callable[..., object]]:
    """Return every hook by name, in the order of the source."""
    return {
        name: value
        for name, value in vars(hookspecs).items()
        if inspect.isfunction(value) and value.__module__ == hookspecs.__name__ and name.startswith(hookspecs.PROJECT)
    }


def _markdown(doc: str) -> str:
    doc, _, example = doc.partition("Example::\n")
    doc = re.sub(r":(?:class|func|mod|data):`([^`]+)`", r"`\1`", doc).replace("``", "`")
    doc = re.sub(r"^:param (\w+): ", r"- `\1`: ", doc, flags=re.MULTILINE)
    doc = re.sub(r"^:return: ", "- Returns: ", doc, flags=re.MULTILINE)
    doc = re.sub(r"^    (?=\S)", "  ", doc, flags=re.MULTILINE)
    return f"{doc.strip()}\n\n```python\n{inspect.cleandoc(example)}\n```"


PAGES = {"variables.md": variables_page, "hooks.md": hooks_page}


def main() -> int:
    """Write or check the pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a page is out of date")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if not _matches(DOCS / name, page())]
    for name in stale:
        if check:
            print(f"docs/{name} is out of date; run: python tools/generate_docs.py", file=sys.stderr)
        else:
            (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
    return 1 if check and stale else 0


def _matches(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
