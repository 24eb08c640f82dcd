"""Graph breaks, while Dynamo traces, at calls that cannot be compiled.

Dynamo evaluates every call on fake tensors. A rule among the fake-tensor rules sees the ATen operators that a call
reaches, whatever form the user wrote, and raises Dynamo's own ``Unsupported``: with ``fullgraph=False`` Dynamo then
splits the function at that call, with ``fullgraph=True`` the error is the user's. The rule does nothing unless the
running compilation is for this backend.

Operators that take functions, such as ``torch.cond``, are looked at before Dynamo traces their functions; calls on
streams and events, which no fake tensor evaluates, before Dynamo puts them into the graph.

Two things escape the rule, and are answered by tracing once more (:func:`handing_over`): results that fake tensors
keep from a trace for another backend, and calls that turn out not to lower.
"""

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from torch_neuronx import plugins
from torch_neuronx.events import GraphBroke
from torch_neuronx_compile._compat import (
    FakeTensorDeviceMismatchError,
    RetraceFrame,
    Translator,
    before_calls_in,
    before_higher_order_calls,
    clear_fake_tensor_cache,
    current_compilation,
    current_translator,
    first_fake_tensor_rule,
    graph_break,
    is_packet_of,
    is_ragged,
    leave_frame_of_torch,
    traced_inputs,
    user_stack,
)
from torch_neuronx_compile.capture import convolution_layout, mixed_devices
from torch_neuronx_compile.errors import GraphCompilationError
from torch_neuronx_compile.support import learned, streams
from torch_neuronx_compile.support.control_flow import REASONS
from torch_neuronx_compile.support.verdict import foreign, may_break, why_not

TYPE = "Op not supported by the Neuron backend"
"""The type of the graph break, as Dynamo counts and reports it."""

_HINTS = [
    "Keep the call out of the compiled function, or compile with fullgraph=False: it then runs in eager mode between "
    "two compiled graphs.",
]

Claim = Callable[[tuple[Any, ...], dict[str, Any]], bool]


class _State(threading.local):
    handed_over = 0
    """How many evaluations of this thread are not Dynamo's tracing, such as that of a graph being compiled."""


_state = _State()
_claims: dict[Callable[..., Any], Claim] = {}
_told: set[tuple[str, str, str]] = set()
_retraced: "WeakKeyDictionary[object, set[str]]" = WeakKeyDictionary()

_for_neuron: "WeakSet[object]" = WeakSet()
"""Compilations known to be for this backend, whatever their trace has met so far."""


class _Cached:
    stale = False
    """Whether fake tensors may remember results of calls for another backend where this one would break."""


def install(backend: Callable[..., Any], claim: Claim = lambda args, kwargs: True) -> None:
    """Apply the rule when Dynamo traces for ``backend``, to calls whose arguments ``claim`` accepts."""
    if not _claims:
        convolution_layout.install()
        first_fake_tensor_rule(_applies, _rule)
        before_higher_order_calls(REASONS, _higher_order_rule)
        before_calls_in(streams.NAMESPACE, _stream_rule)
        clear_fake_tensor_cache()
    _claims[backend] = claim


def begin(backend: Callable[..., Any], claim: Claim) -> None:
    """Install the rule for ``backend`` while it compiles; the first time, raises what makes Dynamo trace once more."""
    if backend in _claims:
        return
    install(backend, claim)
    clear_fake_tensor_cache()
    if current_translator() is not None:
        raise RetraceFrame(restart_reason="the trace was made without the rule for graph breaks")


@contextmanager
def handing_over(module: fx.GraphModule) -> Iterator[None]:
    """Surround the compilation of Dynamo's graph ``module``.

    Raises what makes Dynamo trace the frame once more, where fake tensors had kept results that hide a break, and where
    a call of ``module`` turned out to have no lowering: the call is remembered, and the rule then breaks there.
    """
    translator = current_translator()
    if translator is not None and _Cached.stale and _claim() is not None:
        _Cached.stale = False
        clear_fake_tensor_cache()
        raise RetraceFrame(restart_reason="results for another backend were remembered")
    if translator is not None and _holds_stream_calls(module) and current_compilation() not in _for_neuron:
        _for_neuron.add(current_compilation())
        raise RetraceFrame(restart_reason="a call on a stream came before the first tensor of the device")
    with _handed_over():
        try:
            yield
        except GraphCompilationError as error:
            if translator is not None and error.node is not None and error.unsupported:
                _learn(module, error.node, error.reason)
            raise


@contextmanager
def _handed_over() -> Iterator[None]:
    _state.handed_over += 1
    try:
        yield
    finally:
        _state.handed_over -= 1


def _holds_stream_calls(module: fx.GraphModule) -> bool:
    return any(is_packet_of(streams.NAMESPACE, node.target) for node in module.graph.nodes)


def _learn(module: fx.GraphModule, culprit: fx.Node, reason: str) -> None:
    call = _origin(module, culprit)
    if call is None:
        return
    key = _describe_call(call)
    learned.learn(key, _sentence(reason))
    retraced = _retraced.setdefault(current_compilation(), set())
    if key in retraced:  # the rule did not see the call: give up rather than turn in circles
        return
    retraced.add(key)
    clear_fake_tensor_cache()
    raise RetraceFrame(restart_reason=f"{key} does not lower")


def _origin(module: fx.GraphModule, culprit: fx.Node) -> fx.Node | None:
    """Return the call of Dynamo's graph that ``culprit``, of an AOT graph, was made from."""
    calls = [node for node in module.graph.nodes if node.op in ("call_function", "call_method")]
    sources = culprit.meta.get("from_node") or ()
    names = {source.name for source in sources}
    trace = culprit.meta.get("stack_trace")
    for node in calls:
        if node.name in names:
            found: fx.Node = node
            return found
    for node in calls:
        if trace and node.meta.get("stack_trace") == trace:
            found = node
            return found
    return None


def _sentence(reason: str) -> str:
    return f"it {reason}" if reason.startswith(("has ", "does ")) else reason


# The rule -------------------------------------------------------------------------------------------------------------


def _applies(op: OpOverload) -> bool:
    """Return whether the rule is to be asked; called for every operator whose result is not remembered."""
    if _state.handed_over:
        return False
    if _claim() is not None:
        return True
    if not _Cached.stale and isinstance(op, OpOverload) and (learned.anything() or may_break(op)):
        _Cached.stale = True
    return False


def _rule(mode: Any, op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    claim, translator = _claim(), current_translator()
    if claim is None or translator is None:
        return NotImplemented
    if not claim(args, kwargs):
        _Cached.stale = _Cached.stale or may_break(op)
        return NotImplemented
    node = _current_node(translator)
    mixture = mixed_devices.describe(op, args, kwargs)
    if mixture is not None:
        return _evaluate_mixture(translator, mode, op, args, kwargs, mixture)
    if learned.anything():
        mode.cache_enabled = False  # every later call of this trace comes here
    reason = why_not(op, args, kwargs) or _why_not_node(node)
    if reason is not None:
        _break(translator, str(op) if node is None else spelling(node), op, reason)
    return NotImplemented


def _evaluate_mixture(
    translator: Translator, mode: Any, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], mixture: str
) -> Any:
    try:
        with mode, _handed_over():
            return op(*args, **kwargs)
    except FakeTensorDeviceMismatchError:
        # Eager mode raises the same sentence: after the break, unless the user allows none.
        graph_break(mixed_devices.TYPE, context=str(op), explanation=mixture, hints=mixed_devices.HINTS)


def _higher_order_rule(op: Any, fixed: bool) -> None:
    claim, translator = _claim(), current_translator()
    reason = REASONS.get(op.__name__)
    if claim is None or translator is None or reason is None or not claim(traced_inputs(translator), {}):
        return
    if op.__name__ == "cond" and fixed:
        return  # Dynamo takes the branch that a constant chooses
    leave_frame_of_torch(translator)
    name = op.__name__ if hasattr(torch, op.__name__) else f"ops.higher_order.{op.__name__}"
    _break(translator, f"torch.{name}", op, reason)


def _stream_rule(name: str) -> None:
    claim, translator = _claim(), current_translator()
    if claim is None or translator is None:
        return
    if current_compilation() not in _for_neuron and not claim(traced_inputs(translator), {}):
        return
    _break(translator, streams.SPELLINGS.get(name, name), f"{streams.NAMESPACE}::{name}", streams.REASON)


def _claim() -> Claim | None:
    translator = current_translator()
    if translator is None:
        return None
    backend: Any = translator.output.compiler_fn
    while backend is not None:
        # Wrappers that PyTorch makes anew for every function are known by their class.
        claim = _claims.get(type(backend)) or (_claims.get(backend) if _hashable(backend) else None)
        if claim is not None:
            return claim
        backend = getattr(backend, "_torchdynamo_orig_backend", None) or getattr(backend, "compiler_fn", None)
    return None


def _hashable(value: object) -> bool:
    return type(value).__hash__ is not None


def _current_node(translator: Translator) -> fx.Node | None:
    """Return the call that Dynamo is evaluating: the last of the graph under construction."""
    last = next(iter(reversed(translator.output.current_tracer.graph.nodes)), None)
    return last if last is not None and last.op in ("call_function", "call_method") else None


def _why_not_node(node: fx.Node | None) -> str | None:
    if node is None:
        return None
    if isinstance(node.target, (OpOverload, OpOverloadPacket)):
        target = node.target
        names = [] if isinstance(target, OpOverload) else target.overloads()  # type: ignore[no-untyped-call]
        overloads = [getattr(target, name) for name in names] or [target]
        reasons = [foreign(overload) for overload in overloads]
        if reasons and None not in reasons:
            return reasons[0]
    if not learned.anything():
        return None
    # Inside the autograd kernel of somebody's operator gradients are off, and were not when its call was learned.
    own = isinstance(node.target, (OpOverload, OpOverloadPacket))
    told = learned.reason_for(_describe_call(node))
    return told or (learned.reason_for(_describe_call(node, takes_gradients=True)) if own else None)


def _break(translator: Translator, name: str, op: Any, reason: str) -> None:
    told = f"{name} cannot be compiled for device neuron: {reason}."
    stack = user_stack()
    location = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    if not translator.one_graph and (name, reason, location) not in _told:
        _told.add((name, reason, location))
        plugins.notify(GraphBroke(name, reason, location))
    graph_break(TYPE, context=f"{name} calls {op}", explanation=told, hints=_HINTS)


# How a call is written ------------------------------------------------------------------------------------------------


def spelling(node: fx.Node) -> str:
    """Return the operator as the user wrote it: ``torch.sort``, ``Tensor.sort``."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    target = node.target
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{target}"
    if target is operator.getitem:
        return "Tensor.__getitem__"
    name = torch.overrides.resolve_name(target)
    if name is None:
        name = f"{getattr(target, '__module__', None) or ''}.{getattr(target, '__name__', target)}".removeprefix(".")
    return str(name).replace("torch._C._nn.", "torch.nn.functional.").replace("torch._VariableFunctions.", "torch.")


def _describe_call(node: fx.Node, takes_gradients: bool | None = None) -> str:
    """Return a text that equal calls share: operator, dtypes, shapes, other arguments, whether a gradient is taken."""
    takes = torch.is_grad_enabled() if takes_gradients is None else takes_gradients
    arguments = [_describe(argument, takes) for argument in node.args]
    arguments += [f"{name}={_describe(argument, takes)}" for name, argument in sorted(node.kwargs.items())]
    return f"{spelling(node)}({', '.join(arguments)})"


def _describe(argument: Any, takes_gradients: bool) -> str:
    match argument:
        case fx.Node():
            return _describe(argument.meta.get("example_value", argument.meta.get("val")), takes_gradients)
        case torch.Tensor() if is_ragged(argument):
            return repr(argument)
        case torch.Tensor():
            dtype = str(argument.dtype).removeprefix("torch.")
            gradient = " with gradient" if argument.requires_grad and takes_gradients else ""
            return f"{dtype}{[int(extent) for extent in argument.shape]}{gradient}"
        case torch.SymInt():
            return str(int(argument))
        case torch.SymFloat():
            return str(float(argument))
        case list() | tuple():
            return f"[{', '.join(_describe(item, takes_gradients) for item in argument)}]"
        case slice():
            parts = (argument.start, argument.stop, argument.step)
            return ":".join(_describe(part, takes_gradients) for part in parts)
    return repr(argument)
