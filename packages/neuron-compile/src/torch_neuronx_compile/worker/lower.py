"""The task that lowers one graph. Runs in the worker."""

from torch_neuronx_compile.worker.canonical import make_static, portable, readable
from torch_neuronx_compile.worker.locations import keep_locations
from torch_neuronx_compile.worker.torch_to_stablehlo import convert, tidy


def lower(
    torch_module: bytes, arguments: dict[str, list[str]], custom_calls: dict[str, str], expansions: dict[str, str]
) -> bytes:
    """Return the canonical StableHLO artifact of a module in the torch dialect.

    ``arguments`` names the arguments of every operator that crosses as a call, ``custom_calls`` the custom-call
    targets of those that stay calls, ``expansions`` the ``module:function`` that builds what plugins expand. Raises
    :class:`WorkerTaskError` with what the passes say.
    """
    module, calls = convert(torch_module, arguments)
    return portable(tidy(make_static(module, calls, custom_calls, expansions)))


def lower_for_people(
    torch_module: bytes, arguments: dict[str, list[str]], custom_calls: dict[str, str], expansions: dict[str, str]
) -> str:
    """Return the text of the program that :func:`lower` makes, with the lines of the user's program as locations."""
    with keep_locations():
        module, calls = convert(torch_module, arguments)
        return readable(tidy(make_static(module, calls, custom_calls, expansions)))
