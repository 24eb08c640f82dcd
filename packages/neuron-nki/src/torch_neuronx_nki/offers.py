"""Kernels in place of operators: the offers of all plugins, asked at every call on device ``neuron``.

An operator with an offer gets a kernel of its own for the device, in front of PyTorch's definition. It runs the first
offer whose predicate accepts the call, else what PyTorch defines; in eager mode and wherever a graph is traced.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from torch_neuronx import config, plugins
from torch_neuronx.errors import PluginError
from torch_neuronx.kernels import KernelOffer
from torch_neuronx_nki._compat import hide_from_dynamo

_KEYS = ("AutogradPrivateUse1", "PrivateUse1")  # the second where nothing is recorded: torch.inference_mode
_installed: dict[str, torch.library.Library] = {}


def install() -> None:
    """Put the offers of all plugins into place; those that are there stay.

    Raises :class:`PluginError` for an offer for an operator that does not exist, or that PyTorch does not define by
    others: its gradient could not be had where the offer refuses.
    """
    for name in plugins.manager().offered():
        if name not in _installed:
            _installed[name] = _install(name, operator_of(name))


def operator_of(name: str) -> torch._ops.OpOverload:
    """Return the operator called ``namespace::name`` or ``namespace::name.overload``."""
    qualified, _, overload = name.partition(".")
    namespace, _, short = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise PluginError(f"A kernel is offered for {name}, and there is no such operator. Correct its KernelOffer.op.")
    return found


def _install(name: str, operator: torch._ops.OpOverload) -> torch.library.Library:
    if not torch._C._dispatch_has_kernel_for_dispatch_key(_qualified(operator), "CompositeImplicitAutograd"):
        raise PluginError(
            f"A kernel is offered for {name}, which PyTorch does not define by other operators. Offer it for one that "
            "is so defined, or give it a kernel with torch.library.impl."
        )
    namespace, _, short = _qualified(operator).partition("::")
    hide_from_dynamo(_call.__code__)
    library = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
    for key in _KEYS:
        library.impl(short, partial(_call, name, operator), key)  # type: ignore[no-untyped-call]
    return library


def _qualified(operator: torch._ops.OpOverload) -> str:
    return str(operator.name())  # type: ignore[no-untyped-call]


def _call(name: str, operator: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    offer = choose(name, args, kwargs)
    return operator.decompose(*args, **kwargs) if offer is None else offer.kernel(*args, **kwargs)


def choose(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> KernelOffer | None:
    """Return the offer that serves a call of the operator ``name``, or ``None``."""
    for offer in plugins.manager().kernels(name):
        if offer.predicate(*args, **kwargs):
            return offer
    return None


def ours() -> list[KernelOffer]:
    """Return the offers of this package."""
    from torch_neuronx_nki.kernels import attention, rms_norm

    return [
        KernelOffer(
            "nki-attention",
            "aten::scaled_dot_product_attention",
            kernel=attention.scaled_dot_product_attention,
            predicate=_if(lambda: config.get(config.ENABLE_NKI_SDPA), attention.serves),
        ),
        KernelOffer(
            "nki-rms-norm",
            "aten::_fused_rms_norm",
            kernel=rms_norm.fused_rms_norm,
            predicate=_if(lambda: config.get(config.ENABLE_NKI_RMS_NORM), rms_norm.serves),
        ),
    ]


def _if(enabled: Callable[[], bool], serves: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *args, **kwargs: enabled() and serves(*args, **kwargs)
