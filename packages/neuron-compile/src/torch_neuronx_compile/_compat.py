"""Every private name of torch and jaxlib that this package uses: the version it was checked against, and why.

torch 2.13.0:

- ``ShortenTraceback``: the one exception base that Dynamo hands to the user as it is, without wrapping it.
- ``aot_autograd``, ``min_cut_rematerialization_partition``: how every backend outside torch uses AOT Autograd.
- ``aggressive_recomputation``, ``get_default_op_list``: what that partitioner computes again, and what it thinks cheap.
- ``assume_static_by_default`` is how an explicit ``dynamic=True`` shows: the backend is not told.
- ``tracked_fakes``: how ``mark_dynamic`` shows, as a constraint; sizes that Dynamo varies by itself have none, or one
  that only warns.
- ``detect_fake_mode``: the fake mode of a graph under construction; passes compute metadata of new nodes with it.
- ``free_unbacked_symbols``: which shapes of a graph depend on data.
- ``is_nested_int``: which sizes are those of a nested tensor's ragged dimension.
- ``invoke_subgraph``: what a region marked by ``nested_compile_region`` is in Dynamo's graph.
- ``TensorifyScalarRestartAnalysis``: the one exception of a backend that Dynamo answers by tracing the frame again.
- ``op_implementations_checks``: the list behind ``register_op_impl``. Ours must come first: the rules of operators
  whose shapes depend on values raise themselves.
- ``FakeTensorDeviceMismatchError``: how fake tensors refuse a mixture of devices.
- ``FakeTensorMode.cache_clear``: forget results of calls that were traced for another backend.
- ``InstructionTranslator.current_tx``: the trace that runs, its graph and its backend.
- ``OpOverloadPacket._qualified_op_name``: its namespace, which overloads tell and packets do not.
- ``SkipFrame``: how Dynamo leaves a frame to Python.
- ``unimplemented``: how Dynamo breaks a graph.
- ``_hop_name_to_variable_class``: what traces a call of an operator that takes functions. A break inside is an error
  for most of them, so that it has to come before.
- ``OutputGraph.create_proxy``: what puts calls on streams and events into a graph. No fake tensor evaluates them, so
  that no rule among those sees them.
- ``TracingContext.fw_metadata``: which of a graph's outputs AOT Autograd copies into its inputs.
- ``InputMutationAOTOutput``: the same of a joint graph, before there is that metadata.
- ``create_synthetic_base_metadata``, ``OutputAliasInfo``, ``ViewMetaSequence``, ``as_strided_ViewMeta``: how a compiled
  call makes its outputs that are views of arguments, where arguments lie in one memory and are written into. PyTorch
  takes these views of that memory as if it were the argument.
- ``compute_overlapping_tensors``, ``_has_symbolic_sizes_strides``: how AOT Autograd finds arguments in one memory.
- ``_reinterpret_tensor``: an output that shares memory with another one and is no view to autograd, as Inductor's.
- ``TracingContext.extract_stack``, ``CompileContext``: where in the user's program the trace is, and which one it is.
- ``SerializableAOTDispatchCompiler``, ``OutputCode``: what AOT Autograd's cache takes a compiled graph as; without them
  it takes Inductor's only.
- ``bundled_autograd_cache``: the entry holds that object, not a key of Inductor's cache. The patch must still be in
  force when the backward graph is compiled.
- ``force_non_lazy_backward_lowering``: hence this, and because both graphs are compiled at the same time.
- ``donated_buffer``, ``bw_donated_idxs``: what a backward graph may write into; programs write into no input.
- ``BypassAOTAutogradCache``: how an entry that cannot be kept is left out.
- ``codecache.init_backend_registration``, ``custom_backend_passes``, ``custom_backend_codegen_configs``: what AOT
  Autograd's key says of Inductor's code generators, of which this backend uses none. To ask them is to import them all.
- ``codecache.torch_key``: a digest of PyTorch's sources, which are read for it. Those of a release are its version.
- ``GraphPickler``: graphs as ``aot_eager`` keeps them.
- ``caching_precompile``, ``PrecompileContext``: Dynamo's entries are written by ``save_cache_artifacts`` only.
- ``_TorchCompileInductorWrapper``: what ``torch.compile`` makes of ``mode`` and ``options`` for Inductor; ``dynamic``
  is kept on the wrapper of other backends only.
- ``disable_proxy_modes_tracing`` and what fake tensors raise: the layout of an operator's result is asked of the
  operator while its decomposition is traced.
- ``fake_impls.conv``, ``_conv_determine_backend_memory_format``: fake convolutions, and the layout of real ones.
- ``unset_fake_temporarily``: a backend is called under a fake mode, and constants are real tensors.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, wraps
from traceback import StackSummary
from typing import Any, NoReturn

import torch
from torch._C import _functionalization
from torch._C._dynamo import guards as _guards
from torch._dynamo import config as _dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import ShortenTraceback, SkipFrame, TensorifyScalarRestartAnalysis, unimplemented
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.precompile_context import PrecompileContext
from torch._dynamo.symbolic_convert import InstructionTranslator as Translator
from torch._dynamo.variables.higher_order_ops import _hop_name_to_variable_class as higher_order_variables
from torch._functorch import config as _functorch_config
from torch._functorch._aot_autograd import input_output_analysis as _input_output_analysis
from torch._functorch._aot_autograd import runtime_wrappers as _runtime_wrappers
from torch._functorch._aot_autograd.autograd_cache import (
    BypassAOTAutogradCache,
    should_use_local_autograd_cache,
    should_use_remote_autograd_cache,
)
from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput
from torch._functorch._aot_autograd.functional_utils import ViewMetaSequence
from torch._functorch._aot_autograd.schemas import OutputAliasInfo, OutputType, SerializableAOTDispatchCompiler
from torch._functorch.partitioners import get_default_op_list, min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext, detect_fake_mode
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._inductor import codecache as _codecache
from torch._inductor.output_code import OutputCode
from torch._ops import OpOverloadPacket
from torch._subclasses.fake_impls import conv as fake_convolution
from torch._subclasses.fake_impls import op_implementations_checks
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.fx._graph_pickler import GraphPickler, Options
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing as untraced
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols, is_nested_int

__all__ = [
    "CANNOT_BE_FAKED",
    "CannotBeCached",
    "FakeTensorDeviceMismatchError",
    "OutputCode",
    "RetraceFrame",
    "SerializableAOTDispatchCompiler",
    "ShortenTraceback",
    "Translator",
    "aot_autograd",
    "backward_with_forward",
    "before_higher_order_calls",
    "cached_functions",
    "caches_functions",
    "caches_packages",
    "clear_fake_tensor_cache",
    "compile_with_inductor",
    "current_compilation",
    "current_translator",
    "detect_fake_mode",
    "fake_convolution",
    "first_fake_tensor_rule",
    "free_unbacked_symbols",
    "graph_break",
    "invoke_subgraph",
    "layout_of_convolution",
    "leave_frame_of_torch",
    "marked_dynamic",
    "min_cut_rematerialization_partition",
    "must_be_saved",
    "pickle_graph",
    "returned_outputs",
    "traced_inputs",
    "unpickle_graph",
    "unset_fake_temporarily",
    "untraced",
    "updated_inputs",
    "user_stack",
    "views_of_arguments",
    "wants_dynamic_shapes",
    "write_packages",
]

CANNOT_BE_FAKED = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
"""What fake tensors raise for operators whose results they cannot describe."""


def updated_inputs(forward: bool) -> tuple[int, ...]:
    """Return the inputs that the first outputs of the graph under compilation are new values of.

    A backward graph has none.
    """
    context = TracingContext.try_get()
    metadata = None if context is None or not forward else context.fw_metadata
    return () if metadata is None else tuple(metadata.mutated_inp_runtime_indices)


def returned_outputs() -> int | None:
    """Return how many outputs of the forward graph under compilation its caller gets; ``None``: all.

    The others are kept for the backward graph.
    """
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return None if metadata is None else int(metadata.num_forward_returns)


def written_inputs(joint: torch.fx.Graph) -> list[torch.fx.Node]:
    """Return the arguments of a joint graph into which the program writes."""
    outputs = joint.output_node().meta.get("desc") or ()
    written = [output.mutated_input for output in outputs if isinstance(output, InputMutationAOTOutput)]
    return [node for node in joint.find_nodes(op="placeholder") if node.meta.get("desc") in written]


def wants_dynamic_shapes() -> bool:
    """Return whether the running compilation was asked for with ``dynamic=True``."""
    return not _dynamo_config.assume_static_by_default


def marked_dynamic() -> str | None:
    """Return the first input of the running compilation that the user marked as dynamic, as the program names it."""
    translator = current_translator()
    for tracked in () if translator is None else translator.output.tracked_fakes:
        constraints = getattr(tracked.symbolic_context, "constraint_sizes", None) or ()
        if any(constraint is not None and not getattr(constraint, "warn_only", False) for constraint in constraints):
            return str(tracked.source.name)
    return None


class RetraceFrame(TensorifyScalarRestartAnalysis):
    """Raised by the backend: Dynamo traces the frame once more."""


def current_translator() -> Translator | None:
    """Return Dynamo's trace that runs in this thread, if one does."""
    try:
        return Translator.current_tx()
    except AttributeError:
        return None


def graph_break(gb_type: str, *, context: str, explanation: str, hints: list[str]) -> NoReturn:
    """Break the graph at the call that Dynamo evaluates; raises ``torch._dynamo.exc.Unsupported``."""
    unimplemented(gb_type=gb_type, context=context, explanation=explanation, hints=hints)


def first_fake_tensor_rule(applies: Callable[[Any], bool], rule: Callable[..., Any]) -> None:
    """Put a rule before all others that fake tensors have; it may leave a call to them with ``NotImplemented``."""
    op_implementations_checks.insert(0, (applies, rule))


def layout_of_convolution(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Return how oneDNN lays out the result of a convolution: channels last where the input or the weight is."""
    backend = torch._C._ConvBackend.Mkldnn  # type: ignore[attr-defined]
    return torch._C._conv_determine_backend_memory_format(input, weight, backend)


def before_higher_order_calls(names: Iterable[str], rule: Callable[[Any, bool], None]) -> None:
    """Have ``rule(op, fixed)`` called before Dynamo traces a call of an operator of these names.

    ``fixed`` tells that the first argument of the call is a constant of the trace.
    """
    for variable in {higher_order_variables[name] for name in names if name in higher_order_variables}:
        _call_before(variable, rule)


def before_calls_in(namespace: str, rule: Callable[[str], None]) -> None:
    """Have ``rule(name)`` called before Dynamo puts a call of an operator of ``namespace`` into a graph unevaluated."""
    original = OutputGraph.create_proxy

    def create_proxy(self: OutputGraph, kind: str, target: Any, *rest: Any, **others: Any) -> Any:
        if is_packet_of(namespace, target):
            rule(target.__name__)
        return original(self, kind, target, *rest, **others)

    OutputGraph.create_proxy = create_proxy  # type: ignore[method-assign]


def is_packet_of(namespace: str, target: Any) -> bool:
    """Return whether ``target`` is an operator of ``namespace``, all of its overloads."""
    return isinstance(target, OpOverloadPacket) and target._qualified_op_name.startswith(f"{namespace}::")


def _call_before(variable: Any, rule: Callable[[Any, bool], None]) -> None:
    original = variable.call_function

    def call_function(self: Any, tx: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        first = next(iter((*args, *kwargs.values())), None)
        rule(self.value, first is not None and first.is_python_constant())
        return original(self, tx, args, kwargs)

    variable.call_function = call_function


def leave_frame_of_torch(translator: Translator) -> None:
    """Have Dynamo leave the frame alone if it is a function of PyTorch's that calls an operator with functions.

    Broken there, it would go on as if its functions had been traced.
    """
    root = translator.output.root_tx
    if str(root.f_globals.get("__name__")).startswith("torch._higher_order_ops."):
        raise SkipFrame(f"{root.f_code.co_name} runs in eager mode")


def traced_inputs(translator: Translator) -> tuple[Any, ...]:
    """Return the fake tensors of the inputs that the trace has met."""
    return tuple(tracked.fake for tracked in translator.output.tracked_fakes)


def inside_another_rule() -> bool:
    """Return whether the operator that fake tensors evaluate is a step of how they evaluate another one."""
    depth, frame = 0, sys._getframe(1)
    while frame is not None and depth < 2:
        depth += frame.f_code is FakeTensorMode._dispatch_impl.__code__
        frame = frame.f_back  # type: ignore[assignment]
    return depth == 2


def clear_fake_tensor_cache() -> None:
    """Make fake tensors forget the results of calls."""
    FakeTensorMode.cache_clear()


def user_stack() -> StackSummary:
    """Return the user's frames at the point that Dynamo traces."""
    return TracingContext.extract_stack()


def compile_with_inductor(
    module: torch.fx.GraphModule, inputs: Sequence[Any], mode: str | None, options: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """Compile Dynamo's graph as ``torch.compile(backend="inductor", mode=mode, options=options)`` does."""
    translator = current_translator()
    asked: Any = None if translator is None else translator.output.compiler_fn
    while asked is not None and not hasattr(asked, "dynamic"):
        asked = getattr(asked, "_torchdynamo_orig_backend", None) or getattr(asked, "compiler_fn", None)
    make: Any = torch._TorchCompileInductorWrapper
    wrapper = make(mode, options, getattr(asked, "dynamic", None))
    compiled: Callable[..., Any] = wrapper(module, inputs)
    return compiled


def current_compilation() -> CompileContext:
    """Return what stands for the compilation of one frame, however often it is traced."""
    return CompileContext.get()


_compiler_config: Any = torch.compiler.config  # its functions are added when torch is imported
CannotBeCached = BypassAOTAutogradCache


def caches_functions() -> bool:
    """Return whether AOT Autograd looks up and keeps what it makes of functions, or must be able to."""
    wanted = _functorch_config.force_autograd_cache or _dynamo_config.caching_precompile
    return bool(wanted or should_use_local_autograd_cache() or should_use_remote_autograd_cache())


def must_be_saved() -> bool:
    """Return whether the user compiles in order to save the result (``aot_compile``)."""
    return bool(_functorch_config.force_autograd_cache)


class _Thread(threading.local):
    inductors_own = True
    """Whether keys that this thread makes speak of Inductor's code generators."""
    views_of_arguments = False
    """Whether what this thread traces takes views of arguments from these, not from the memory that several share."""


_thread = _Thread()


class _Registered:
    """A registry of Inductor's, empty for keys that do not speak of it."""

    def __init__(self, registered: Mapping[str, Any]) -> None:
        self._registered = registered

    def values(self) -> Iterable[Any]:
        return self._registered.values() if _thread.inductors_own else ()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._registered.items() if _thread.inductors_own else ()


@cache
def _let_keys_leave_out_inductor() -> None:
    names: Any = _codecache
    register = names.init_backend_registration
    names.init_backend_registration = lambda: register() if _thread.inductors_own else None
    of_sources = names.torch_key
    version = f"{torch.__version__} {torch.version.git_version}".encode()
    released = "git" not in torch.__version__

    @wraps(of_sources)  # with the functions that it has as attributes
    def torch_key() -> bytes:
        return of_sources() if _thread.inductors_own or not released else version

    names.torch_key = torch_key
    for registry in ("custom_backend_passes", "custom_backend_codegen_configs"):
        setattr(names, registry, _Registered(getattr(names, registry)))


@contextmanager
def backward_with_forward() -> Iterator[None]:
    """Have AOT Autograd hand over the backward graph together with the forward graph."""
    with _functorch_config.patch(force_non_lazy_backward_lowering=True, donated_buffer=False):
        yield


def keep_what_is_saved() -> None:
    """Say of the backward graph under compilation that it leaves what it is given as it is.

    Else ``backward(retain_graph=True)`` is refused.
    """
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


@contextmanager
def cached_functions(tag: str) -> Iterator[None]:
    """Have AOT Autograd keep this backend's graphs in its entries, under keys that ``tag`` is part of."""
    _let_keys_leave_out_inductor()
    tags = f"{torch.compiler.config.cache_key_tag}|neuron:{tag}"
    with (
        _functorch_config.patch(bundled_autograd_cache=True),
        _compiler_config.patch(cache_key_tag=tags),
    ):
        before, _thread.inductors_own = _thread.inductors_own, False
        try:
            yield
        finally:
            _thread.inductors_own = before


def is_ragged(value: object) -> bool:
    """Return whether ``value`` is a nested tensor, of which a size is the symbol of its offsets."""
    return isinstance(value, torch.Tensor) and any(map(is_nested_int, value.shape))


def reinterpret_tensor(tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
    """Return a tensor over the memory of ``tensor`` that is no view of it to autograd; ``offset`` is from its start."""
    over: Callable[..., torch.Tensor] = _guards._reinterpret_tensor  # type: ignore[attr-defined]
    return over(tensor, shape, strides, offset)


@cache
def let_pinned_sizes_overlap() -> None:
    """Have AOT Autograd compare arguments in one memory also where Dynamo's symbols for their sizes have been pinned.

    It takes sizes that read as numbers for those of a tensor without symbols, which this comparison then refuses.
    """
    names: Any = _input_output_analysis
    original = names.compute_overlapping_tensors

    def overlapping(tensors: Sequence[torch.Tensor], symbolic: bool) -> set[int]:
        found: set[int] = original(
            tensors, symbolic=symbolic or any(tensor._has_symbolic_sizes_strides for tensor in tensors)
        )
        return found

    names.compute_overlapping_tensors = overlapping


@contextmanager
def views_of_arguments() -> Iterator[None]:
    """Have AOT Autograd take outputs that are views of an argument from it, also where arguments lie in one memory."""
    _let_views_start_at_arguments()
    before, _thread.views_of_arguments = _thread.views_of_arguments, True
    try:
        yield
    finally:
        _thread.views_of_arguments = before


@cache
def _let_views_start_at_arguments() -> None:
    names: Any = _runtime_wrappers
    original = names.create_synthetic_base_metadata

    @wraps(original)
    def create(metadata: Any, bases: Sequence[Any], arguments: Sequence[Any], *rest: Any) -> tuple[Any, list[int]]:
        made, changed = original(metadata, bases, arguments, *rest)
        if _thread.views_of_arguments:
            before = metadata.output_info
            own = [_from_argument(*pair, bases, arguments) for pair in zip(before, made.output_info, strict=False)]
            made = replace(made, output_info=[*own, *made.output_info[len(own) :]])
        return made, changed

    names.create_synthetic_base_metadata = create


def _from_argument(
    before: OutputAliasInfo, after: OutputAliasInfo, bases: Sequence[Any], arguments: Sequence[Any]
) -> OutputAliasInfo:
    """Return how an output is made again: ``before`` of the arguments, ``after`` of memories and other arguments."""
    if before.output_type not in (OutputType.is_input, OutputType.alias_of_input) or before.base_idx is None:
        return after
    if isinstance(bases[before.base_idx], int):  # not in one memory with another argument: at another place only
        return replace(after, output_type=before.output_type)
    argument = arguments[before.base_idx]
    size, stride, offset = [*argument.shape], [*argument.stride()], argument.storage_offset()
    seen: Any = before.view_meta_sequence
    known = seen is not None or before.output_type is OutputType.is_input
    if not known or not all(isinstance(number, int) for number in (*size, *stride, offset)):
        return after
    views: Any = ViewMetaSequence.__new__(ViewMetaSequence)
    functions: Any = _functionalization
    start = (False, True, functions.InverseReturnMode.ViewOrScatterInverse, size, stride, offset)
    views.sequence = [functions.as_strided_ViewMeta(start), *(seen.sequence if seen is not None else ())]
    views.metadata = getattr(seen, "metadata", None)
    return replace(after, output_type=OutputType.alias_of_input, view_meta_sequence=views)


@contextmanager
def recomputing() -> Iterator[None]:
    """Have AOT Autograd's partitioner recompute views and whatever nothing bans, and this be a part of its keys."""
    with _functorch_config.patch(aggressive_recomputation=True, recompute_views=True):
        yield


@cache
def _recomputable_packets() -> frozenset[Any]:
    return frozenset(get_default_op_list().recomputable_ops)


def is_recomputable(target: Any) -> bool:
    """Return whether PyTorch's partitioner holds an operator, an overload or a packet of them, to be cheap."""
    return getattr(target, "overloadpacket", target) in _recomputable_packets()


def caches_packages() -> bool:
    """Return whether Dynamo keeps what it makes of functions (``TORCH_CACHING_PRECOMPILE``)."""
    return bool(_dynamo_config.caching_precompile)


def write_packages() -> None:
    """Write what Dynamo has recorded of functions to its cache."""
    PrecompileContext.save_to_dynamo_cache()


def pickle_graph(module: torch.fx.GraphModule) -> bytes:
    """Return an AOT graph in PyTorch's own serialization, without what it says of the user's modules."""
    for node in module.graph.nodes:
        for name in ("nn_module_stack", "source_fn_stack", "example_value"):
            node.meta.pop(name, None)
    pickled: bytes = GraphPickler.dumps(module, Options(ops_filter=None))
    return pickled


def unpickle_graph(pickled: bytes) -> torch.fx.GraphModule:
    """Return the graph that :func:`pickle_graph` got."""
    module = GraphPickler.loads(pickled, FakeTensorMode(shape_env=ShapeEnv()))
    assert isinstance(module, torch.fx.GraphModule)
    module.recompile()
    return module
