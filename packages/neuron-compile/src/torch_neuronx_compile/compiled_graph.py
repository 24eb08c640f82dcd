"""What AOT Autograd calls in place of a graph."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx import config, metrics, plugins
from torch_neuronx.errors import NeuronError
from torch_neuronx.events import GraphExecuted
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx_compile import random_ops
from torch_neuronx_compile._compat import reinterpret_tensor, unset_fake_temporarily
from torch_neuronx_compile.memory_order import inverse
from torch_neuronx_compile.unit import CompilationUnit, Computed, GraphKind, Passed, TensorSpec, Viewed

Outputs = list[torch.Tensor | None]


class CompiledGraph:
    """An executable with the graph's calling convention: its argument list in, all of its outputs out.

    Arguments on the CPU are copied to the device, float64 goes in and out as float32, seeds are drawn at every call.
    """

    def __init__(self, unit: CompilationUnit, executable: Executable) -> None:
        # AOT Autograd then hands over the argument list itself. It wraps what it calls and copies instance attributes.
        self._boxed_call = True
        self._executable = executable
        self._name = unit.name
        self._device = unit.device
        self._seeds = unit.seeds
        self._narrowed = unit.narrowed
        # A backward graph gets gradients of what the forward graph brought to the CPU: nobody handed them over.
        self._handed_over = unit.kind is not GraphKind.BACKWARD
        with unset_fake_temporarily():  # graphs are compiled while AOT Autograd traces
            narrow = torch.float32 if unit.narrowed else torch.float64
            self._constants = [
                _as_real(
                    constant.to(unit.device, narrow if constant.dtype is torch.float64 else constant.dtype), narrow
                )
                for constant in unit.constants
            ]
        self._arguments = unit.arguments
        self._passed = any(isinstance(source, Passed) for source in unit.outputs)
        # Most arguments are device tensors that go in as they are; these are the others.
        self._converted = [
            (position, argument, spec)
            for position, (argument, spec) in enumerate(zip(unit.arguments, unit.inputs, strict=True))
            if spec.device.type != unit.device.type
            or (unit.narrowed and spec.dtype is torch.float64)
            or spec.dtype.is_complex
        ]
        self._outputs = unit.outputs
        self._finish = [_finisher(unit, spec) for spec in unit.results]
        self._finishes = any(self._finish)
        self._as_computed = self._outputs == tuple(map(Computed, range(len(unit.results))))

    def plain(self) -> Callable[[list[Any]], Outputs] | None:
        """Return what runs this graph at the least cost, or ``None``.

        All arguments have to go in and all results to come out as they are, which holds for most graphs.
        """
        count = len(self._arguments)
        changed = self._converted or self._constants or self._seeds or self._finishes
        if changed or not self._as_computed or self._arguments != tuple(range(count)):
            return None
        manager, executable, execute = plugins.manager(), self._executable, self._execute
        count_execution = metrics.count_execution

        def run(arguments: list[Any]) -> Outputs:
            if len(arguments) != count:  # the program reads none of the last ones
                return self(arguments)
            if manager.watched:
                results = execute(arguments)
            else:
                results = executable(arguments)
                count_execution()
            arguments.clear()
            return results if type(results) is list else list(results)

        return run

    def __call__(self, arguments: list[Any]) -> Outputs:
        """Run the graph; empties ``arguments``."""
        inputs = [arguments[i] for i in self._arguments]
        for position, argument, spec in self._converted:
            inputs[position] = self._convert(inputs[position], argument, spec)
        passed = list(arguments) if self._passed else []
        arguments.clear()
        if self._constants:
            inputs.extend(self._constants)
        if self._seeds:
            inputs.append(random_ops.draw(self._device, self._seeds).to(self._device))
        results = self._execute(inputs)
        if self._finishes:
            results = [
                result if finish is None else finish(result)
                for result, finish in zip(results, self._finish, strict=True)
            ]
        if self._as_computed:
            return list(results)
        outputs: Outputs = []
        for source in self._outputs:
            match source:
                case Computed(result):
                    outputs.append(results[result])
                case Passed(argument):
                    outputs.append(passed[argument])
                case Viewed():
                    outputs.append(view(results[source.result], source))
                case None:
                    outputs.append(None)
        return outputs

    def _execute(self, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        manager = plugins.manager()
        if not manager.watched:
            results = self._executable(inputs)
            metrics.count_execution()
            return results
        start = time.perf_counter()
        results = self._executable(inputs)
        manager.notify(GraphExecuted(self._name, self._device.index, time.perf_counter() - start))
        return results

    def _convert(self, tensor: torch.Tensor, argument: int, spec: TensorSpec) -> torch.Tensor:
        if self._handed_over and tensor.device.type == "cpu" and config.get(config.DYNAMO_DISABLE_CPU_AUTOCOPY):
            raise CpuInputError(
                f"Input tensor at index {argument} is on cpu device, expected neuron. Move it with "
                f".to('neuron'), or unset {config.DYNAMO_DISABLE_CPU_AUTOCOPY.name} to have it copied at every call."
            )
        dtype = torch.float32 if self._narrowed and spec.dtype is torch.float64 else spec.dtype
        return _as_real(
            tensor.detach().to(device=self._device, dtype=dtype), torch.float32 if self._narrowed else torch.float64
        )


def view(result: torch.Tensor, viewed: Viewed) -> torch.Tensor:
    """Return an output that shares the memory of ``result``, to autograd a tensor of its own, as all outputs are."""
    return reinterpret_tensor(result, viewed.shape, viewed.strides, viewed.offset)


def _as_real(tensor: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    """Return a complex tensor as pairs of real numbers, complex128 as pairs of ``wide``; others as they are."""
    if not tensor.is_complex():
        return tensor
    pairs = torch.view_as_real(tensor.resolve_conj())
    return pairs.to(wide) if tensor.dtype is torch.complex128 else pairs


class CpuInputError(NeuronError):
    """A CPU tensor reached a compiled graph while automatic copies are off."""

    code = "cpu-input"


def _finisher(unit: CompilationUnit, spec: TensorSpec) -> Any:
    """Return what is to be done to a result, or ``None``."""
    wide = unit.narrowed and spec.dtype is torch.float64
    back = unit.goes_back(spec)
    places = inverse(spec.order)
    if not wide and not back and not spec.dtype.is_complex and not places:
        return None

    def finish(result: torch.Tensor) -> torch.Tensor:
        if spec.dtype.is_complex:
            result = torch.view_as_complex(result.to(torch.float64) if spec.dtype is torch.complex128 else result)
        if wide:
            result = result.to(torch.float64)
        if places:
            result = result.permute(places)
        return result.cpu() if back else result

    return finish
