"""``torch-neuronx env``."""

from dataclasses import asdict, dataclass

from torch_neuronx import config
from torch_neuronx.cli.output import print_json, print_rows
from torch_neuronx.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Row:
    """One variable in this environment."""

    name: str
    value: str
    default: str
    source: str
    type: str
    summary: str
    read_by: str
    error: str
    """Why the value is not accepted; empty where it is."""


def rows() -> list[Row]:
    """Return a row for each declared variable."""
    return [_row(variable) for variable in config.VARIABLES.values()]


def run(*, as_json: bool) -> int:
    """Print the table; return 1 if a value is not accepted."""
    table = rows()
    if as_json:
        print_json([asdict(row) for row in table])
    else:
        shown = [asdict(row) | {"source": "error" if row.error else row.source} for row in table]
        print_rows(shown, ["name", "value", "default", "source"])
        if errors := [asdict(row) for row in table if row.error]:
            print_rows(errors, ["error"])
    return 1 if any(row.error for row in table) else 0


def _row(variable: config.Variable[object]) -> Row:
    default, error = config.default_text(variable), ""
    try:
        setting = config.read(variable)
    except ConfigurationError as problem:
        value, source, error = "", config.Source.ENVIRONMENT.value, str(problem)
    else:
        source = setting.source.value
        value = default if setting.source is config.Source.DEFAULT else config.show(setting.value)
        if setting.spelling != variable.name:
            source += f" ({setting.spelling})"
    readers = ", ".join(variable.honoured_by)
    return Row(variable.name, value, default, source, variable.type.name, variable.summary, readers, error)
