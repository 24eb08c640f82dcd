"""The command ``torch-neuronx``. Starts without torch."""


def main() -> None:
    """Run the command with the process's arguments."""
    from torch_neuronx.cli.app import app

    app(prog_name="torch-neuronx")
