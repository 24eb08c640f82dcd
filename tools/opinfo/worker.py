"""Worker: compares one entry in one dtype at a time."""

import argparse
from typing import Any

import torch

from tools.opinfo._compat import leave_seeds_to_caller
from tools.opinfo.entries import compare_entry, load_device, to_json
from torch_neuronx.testing.isolation import serve


def main() -> None:
    """Answer cases of the form `[index, dtype]`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--import", dest="module")
    options = parser.parse_args()
    torch.set_num_threads(1)
    leave_seeds_to_caller()
    load_device(options.device, options.module)

    def answer(case: tuple[int, str]) -> dict[str, Any]:
        index, dtype = case
        return to_json(compare_entry(index, dtype, options.device))

    serve(answer)


if __name__ == "__main__":
    main()
