"""The command line: ``torch-neuronx-cache``, and ``torch-neuronx cache`` where the core is installed.

Nothing heavy is imported until a command runs; tables come from rich, which is loaded for them alone.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from torch_neuronx_cache.cache import Cache
    from torch_neuronx_cache.entries import Header
    from torch_neuronx_cache.stores.interface import StoredBlob
    from torch_neuronx_cache.why import Explanation

PIPE_WIDTH = 250
"""Columns of a table that is not printed to a terminal."""

app = typer.Typer(
    name="cache",
    help="Look into, check and prune the caches of compiled programs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StoreOption = Annotated[
    str, typer.Option("--store", "-s", help="neff, hlo, a directory or a URL; as the environment configures them.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
WordsArgument = Annotated[str, typer.Argument(metavar="KEY|GRAPH", help="The start of a key, or a graph's name.")]


@app.command("ls")
def list_entries(
    store: StoreOption = "neff",
    limit: Annotated[int, typer.Option(help="Show the latest so many; 0 for all.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """List the entries, latest first: key, graph, size, target, compiler, age, hits."""
    with _opened(store) as cache:
        found = sorted(cache.headers(), key=lambda pair: -pair[1].made.time)
    if limit:
        found = found[:limit]
    if as_json:
        _print_json([_summary(blob, header) for blob, header in found])
        return
    rows = [
        (
            blob.digest[:12],
            header.labels.get("graph", ""),
            _size(blob.size),
            header.describe("target"),
            header.describe("compiler"),
            _age(time.time() - header.made.time),
            str(blob.hits),
        )
        for blob, header in found
    ]
    _print_table(("key", "graph", "size", "target", "compiler", "age", "hits"), rows, right={2, 5, 6})


@app.command()
def show(words: WordsArgument, store: StoreOption = "neff", as_json: JsonOption = False) -> None:
    """Show everything that is known about an entry: parts of its key, labels, what made it."""
    with _opened(store) as cache:
        found = cache.find(words)
        reports = [_summary(blob, header) | {"check": _check(cache, blob.digest)} for blob, header in found]
    if as_json:
        _print_json(reports)
        return
    for report in reports:
        made = report["made"]
        rows = [
            ("key", report["key"]),
            ("kind", report["kind"]),
            ("check", report["check"]),
            ("size", f"{report['size']:,} bytes, content {report['content_size']:,}"),
            ("content", f"blake3 {report['content_hash']}"),
            ("signed", "yes" if report["signed"] else "no"),
            ("made", f"{_moment(made['time'])} by process {made['pid']} of user {made['uid']} on {made['host']}"),
            ("last used", f"{_moment(report['used'])}, {report['hits']} hits"),
            *((f"label {name}", value) for name, value in report["labels"].items()),
            *((f"part {part['name']}", _part(part)) for part in report["parts"]),
        ]
        _print_table(("", ""), rows, header=False)


@app.command()
def why(words: WordsArgument, store: StoreOption = "neff", as_json: JsonOption = False) -> None:
    """Say why an entry had to be compiled: the parts in which it differs from the nearest older entry."""
    from torch_neuronx_cache.why import explain

    with _opened(store) as cache:
        found = cache.find(words)
        headers = [header for _, header in cache.headers()]
    explanations = [
        explain(header.key, (other for other in headers if other.made.time < header.made.time), header.labels)
        for _, header in found
    ]
    if as_json:
        _print_json([_explanation(explanation) for explanation in explanations])
        return
    for explanation in explanations:
        first = f"{explanation.key.digest[:12]} is the first of its kind."
        typer.echo(str(explanation) if explanation.nearest else first)


@app.command()
def verify(
    store: StoreOption = "neff",
    repair: Annotated[bool, typer.Option("--repair", help="Move damaged entries aside, sweep leftovers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every byte of every entry. Ends with status 1 when some are bad and were not repaired."""
    from torch_neuronx_cache.cache import Verdict

    with _opened(store) as cache:
        checks = list(_with_progress(cache.verify(repair=repair), "checking", quiet=as_json))
    bad = [check for check in checks if check.verdict is not Verdict.GOOD]
    if as_json:
        details = [
            {"key": check.digest, "verdict": check.verdict, "reason": check.reason, "kept_at": check.kept_at}
            for check in bad
        ]
        _print_json({"checked": len(checks), "good": len(checks) - len(bad), "bad": details})
    else:
        for check in bad:
            kept = f" Moved to {check.kept_at}." if check.kept_at else ""
            typer.echo(f"{check.digest[:12]} {check.verdict}: {check.reason}.{kept}")
        typer.echo(f"{len(checks)} entries checked, {len(checks) - len(bad)} good, {len(bad)} bad.")
    if any(check.verdict is Verdict.REFUSED or not repair for check in bad):
        raise typer.Exit(1)


@app.command()
def prune(
    store: StoreOption = "neff",
    max_size: Annotated[str, typer.Option(help="Keep at most this much, such as 10G.")] = "",
    older_than: Annotated[str, typer.Option(help="Remove what was not used for this long, such as 30d.")] = "",
    compiler: Annotated[str, typer.Option(help="Remove what this compiler made, as `ls` names it.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove entries, longest unused first. What a running process holds stays."""
    from torch_neuronx_cache.bounds import Limits, parse_age, parse_size

    if not (max_size or older_than or compiler):
        raise typer.BadParameter("say what to remove: --max-size, --older-than or --compiler")
    with _opened(store) as cache:
        limits = Limits(parse_size(max_size) if max_size else None, parse_age(older_than) if older_than else None)
        choose = (lambda header: header.describe("compiler") == compiler) if compiler else None
        removed = cache.prune(limits, choose=choose, dry_run=dry_run)
    size = sum(blob.size for blob in removed)
    if as_json:
        _print_json({"removed": [blob.digest for blob in removed], "size": size, "dry_run": dry_run})
    else:
        typer.echo(f"{'Would remove' if dry_run else 'Removed'} {len(removed)} entries, {_size(size)}.")


@app.command()
def stats(store: StoreOption = "neff", as_json: JsonOption = False) -> None:
    """Add up a store."""
    with _opened(store) as cache:
        found = cache.stats()
        url = cache.store.url if cache.store else ""
    if as_json:
        _print_json({"store": url} | _plain(found))
        return
    rows = [
        ("store", url),
        ("entries", f"{found.entries:,}"),
        ("size", _size(found.size)),
        ("hits", f"{found.hits:,}"),
        ("oldest", _moment(found.oldest)),
        ("newest", _moment(found.newest)),
    ]
    _print_table(("", ""), rows, header=False)


@app.command()
def clear(
    store: StoreOption = "neff",
    force: Annotated[bool, typer.Option("--force", help="Also remove what running processes hold.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove all entries."""
    with _opened(store) as cache:
        if not yes:
            url = cache.store.url if cache.store else ""
            typer.confirm(f"Remove all entries of {url}?", abort=True)
        gone, kept = cache.clear(force=force)
    if as_json:
        _print_json({"removed": gone, "held": kept})
    else:
        typer.echo(f"Removed {gone} entries." + (f" {kept} stay because running processes hold them." if kept else ""))


@app.command()
def push(
    target: Annotated[str, typer.Argument(metavar="URL", help="The store to copy to.")],
    store: StoreOption = "neff",
    as_json: JsonOption = False,
) -> None:
    """Copy to another store what it does not have yet. Broken off, it goes on where it was."""
    _transfer(store, target, as_json=as_json)


@app.command()
def pull(
    source: Annotated[str, typer.Argument(metavar="URL", help="The store to copy from.")],
    store: StoreOption = "neff",
    as_json: JsonOption = False,
) -> None:
    """Copy from another store what this one does not have yet. Broken off, it goes on where it was."""
    _transfer(source, store, as_json=as_json)


def main() -> None:
    """Run the command line of the package alone."""
    app(prog_name="torch-neuronx-cache")


def _transfer(source: str, target: str, *, as_json: bool) -> None:
    from torch_neuronx_cache.transfer import Transfer, copy

    counts = dict.fromkeys(Transfer, 0)
    size = 0
    with _opened(source) as from_cache, _opened(target) as to_cache:
        total, transfers = copy(from_cache, to_cache)
        for transferred in _with_progress(transfers, "copying", quiet=as_json, total=total):
            counts[transferred.result] += 1
            size += transferred.size if transferred.result is Transfer.COPIED else 0
            if transferred.result is Transfer.BAD:
                typer.echo(f"{transferred.digest[:12]} left out: {transferred.reason}.", err=True)
    if as_json:
        _print_json({result.value: count for result, count in counts.items()} | {"size": size})
    else:
        copied, present, bad = (counts[result] for result in (Transfer.COPIED, Transfer.PRESENT, Transfer.BAD))
        typer.echo(f"Copied {copied} entries, {_size(size)}; {present} were there already, {bad} left out as bad.")
    if counts[Transfer.BAD]:
        raise typer.Exit(1)


# ---- how commands open and print


@contextmanager
def _opened(store: str) -> "Iterator[Cache]":
    """Open a store without holding anything in it; an error of this package is a message and status 2."""
    from dataclasses import replace

    from torch_neuronx_cache.cache import Cache
    from torch_neuronx_cache.errors import CacheError
    from torch_neuronx_cache.settings import Settings

    try:
        settings = replace(Settings.from_environ(), memory_bytes=0)
        url = {"neff": settings.neff_url, "hlo": settings.hlo_url}.get(store, store)
        cache = Cache.open(url, settings, read_through=False)
        try:
            yield cache
        finally:
            cache.close()
    except CacheError as error:
        typer.echo(f"torch-neuronx-cache: {error}", err=True)
        raise typer.Exit(2) from error


def _check(cache: "Cache", digest: str) -> str:
    from torch_neuronx_cache.errors import CacheError

    try:
        return "good" if cache.load(digest) else "gone"
    except CacheError as error:
        return str(error)


def _summary(blob: "StoredBlob", header: "Header") -> dict[str, Any]:
    return {
        "key": blob.digest,
        "kind": header.key.kind,
        "graph": header.labels.get("graph", ""),
        "target": header.describe("target"),
        "compiler": header.describe("compiler"),
        "size": blob.size,
        "content_size": header.content_size,
        "content_hash": header.content_hash,
        "signed": header.signed,
        "hits": blob.hits,
        "used": blob.used,
        "labels": dict(header.labels),
        "made": _plain(header.made),
        "parts": [_plain(part) for part in header.key],
    }


def _explanation(explanation: "Explanation") -> dict[str, Any]:
    nearest = explanation.nearest
    return {
        "key": explanation.key.digest,
        "nearest": nearest.key.digest if nearest else None,
        "nearest_graph": nearest.labels.get("graph", "") if nearest else None,
        "compared": explanation.compared,
        "differences": [
            {
                "part": difference.name,
                "before": _plain(difference.before) if difference.before else None,
                "after": _plain(difference.after) if difference.after else None,
                "text": difference.describe(),
            }
            for difference in explanation.differences
        ],
    }


def _plain(record: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(record)


def _part(part: dict[str, Any]) -> str:
    return part["value"] if part["value"] is not None else f"{part['size']:,} bytes, {part['digest'][:12]}"


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def _print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, header: bool = True, right: Iterable[int] = ()
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=header, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # a pipe gets whole lines, whatever the width of the terminal that it came from
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def _with_progress(items: Iterable[Any], what: str, *, quiet: bool, total: int | None = None) -> Iterable[Any]:
    if quiet or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, f"{what} …", total=total, console=Console(stderr=True), transient=True)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _age(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _moment(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds is not None else "-"
