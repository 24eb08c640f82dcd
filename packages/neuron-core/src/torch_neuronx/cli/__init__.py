"""The command ``torch-neuronx``. Starts without torch."""


def main() -> None:
    """Run the command with the process's arguments; an error of the project is one line on stderr, and status 1."""
    from torch_neuronx.cli.app import app
    from torch_neuronx.cli.output import print_error
    from torch_neuronx.errors import NeuronError

    try:
        app(prog_name="torch-neuronx")
    except NeuronError as error:
        print_error(f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
