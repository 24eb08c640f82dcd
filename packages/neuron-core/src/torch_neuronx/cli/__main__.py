"""``python -m torch_neuronx.cli``, where the command itself is not on the path."""

from torch_neuronx.cli import main

if __name__ == "__main__":
    main()
