"""Worker: lowers and compares one entry in one dtype at a time."""

from typing import Any

import torch

from tools.lowering.entries import Through, compare_entry, to_json
from tools.opinfo._compat import leave_seeds_to_caller
from torch_neuronx.testing.isolation import serve


def main() -> None:
    """Answer cases of the form `[index, dtype, limit, batch, through]`."""
    torch.set_num_threads(1)
    leave_seeds_to_caller()
    torch.empty(0, device="neuron")

    def answer(case: tuple[int, str, int | None, int, str]) -> dict[str, Any]:
        index, dtype, limit, batch, through = case
        return to_json(compare_entry(index, dtype, limit, batch, Through(through)))

    serve(answer)


if __name__ == "__main__":
    main()
