"""Convolutions and poolings that the emulator carries out channels last have the numbers of torch for any shape."""

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from torch_neuronx import plugins
from torch_neuronx.compilers import CompileRequest
from torch_neuronx.runtimes.interface import Executable
from torch_neuronx.runtimes.select import select_runtime
from torch_neuronx_compile.worker.canonical import portable

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
LOW = {torch.float32: "0xFF800000", torch.bfloat16: "0xFF80", torch.float16: "0xFC00"}


def _load(body: str) -> Executable:
    request = CompileRequest(portable(f"module {{ {body} }}"), "layouts", "trn2", 2, {})
    return select_runtime().load(plugins.manager().compilers()["emulator"].compile(request), 0)


def _kind(dtype: torch.dtype, *extents: int) -> str:
    return f"tensor<{'x'.join(map(str, [*extents, NAMES[dtype]]))}>"


def _random(dtype: torch.dtype, *extents: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(extents))
    return torch.randint(-4, 5, extents, generator=generator).to(dtype)  # sums of products are exact


@FEW
@given(st.data())
def test_a_chain_of_convolutions(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]), "dtype")
    n, c, o = (data.draw(st.integers(low, 12), name) for low, name in ((0, "batch"), (1, "in"), (1, "out")))
    h, w = data.draw(st.integers(5, 20), "rows"), data.draw(st.integers(5, 20), "columns")
    k, stride = data.draw(st.integers(1, 4), "kernel"), data.draw(st.integers(1, 3), "stride")
    low, high = data.draw(st.integers(0, 3), "low"), data.draw(st.integers(0, 3), "high")
    last, turned = data.draw(st.booleans(), "channels last"), data.draw(st.booleans(), "transposed")
    p, q = ((extent + low + high - k) // stride + 1 for extent in (h, w))
    image = (n, h, w, c) if last else (n, c, h, w)
    made, whole = _kind(dtype, n, o, p, q), _kind(dtype, n, 8, p, q)
    result = _kind(dtype, 8, n, p, q) if turned else whole
    dims = "[b, 0, 1, f]" if last else "[b, f, 0, 1]"
    run = _load(f"""
        func.func @main(%x: {_kind(dtype, *image)}, %w: {_kind(dtype, o, c, k, k)}, %b: {_kind(dtype, o)},
                        %v: {_kind(dtype, 8, o, 1, 1)}) -> {result} {{
          %0 = stablehlo.convolution(%x, %w) dim_numbers = {dims}x[o, i, 0, 1]->[b, f, 0, 1],
            window = {{stride = [{stride}, {stride}], pad = [[{low}, {high}], [{low}, {high}]]}}
            {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : ({_kind(dtype, *image)}, {_kind(dtype, o, c, k, k)}) -> {made}
          %1 = stablehlo.broadcast_in_dim %b, dims = [1] : ({_kind(dtype, o)}) -> {made}
          %2 = stablehlo.add %0, %1 : {made}
          %3 = stablehlo.abs %2 : {made}
          %4 = stablehlo.convolution(%3, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {{}}
            {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : ({made}, {_kind(dtype, 8, o, 1, 1)}) -> {whole}
          %5 = stablehlo.transpose %4, dims = [1, 0, 2, 3] : ({whole}) -> {_kind(dtype, 8, n, p, q)}
          return %{5 if turned else 4} : {result}
        }}""")
    x, v = _random(dtype, *image), _random(dtype, 8, o, 1, 1)
    weight, b = _random(dtype, o, c, k, k), _random(dtype, o)
    actual = run([tensor.to("neuron") for tensor in (x, weight, b, v)])[0].cpu()
    x = x.permute(0, 3, 1, 2) if last else x
    inner = F.conv2d(F.pad(x.float(), [low, high] * 2), weight.float(), None, stride).to(dtype)
    expected = F.conv2d((inner + b[:, None, None]).abs().float(), v.float()).to(dtype)
    torch.testing.assert_close(actual, expected.transpose(0, 1) if turned else expected, rtol=0, atol=0)


@FEW
@given(st.data())
def test_the_largest_of_windows(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), "dtype")
    n, c = data.draw(st.integers(0, 4), "batch"), data.draw(st.integers(1, 20), "channels")
    h, w = data.draw(st.integers(9, 24), "rows"), data.draw(st.integers(9, 24), "columns")
    k, stride, step = (data.draw(st.integers(1, 3), name) for name in ("window", "stride", "dilation"))
    low, high = data.draw(st.integers(0, 3), "low"), data.draw(st.integers(-2, 3), "high")
    after = data.draw(st.booleans(), "after a convolution")
    span = step * (k - 1) + 1
    assume(low < span and high < span)
    p, q = ((extent + low + high - span) // stride + 1 for extent in (h, w))
    image, result = _kind(dtype, n, c, h, w), _kind(dtype, n, c, p, q)
    kernel = _kind(dtype, c, c, 1, 1)
    source = f"""%s = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {{}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({image}, {kernel}) -> {image}"""
    run = _load(f"""
        func.func @main(%x: {image}, %w: {kernel}) -> {result} {{
          %low = stablehlo.constant dense<{LOW[dtype]}> : tensor<{NAMES[dtype]}>
          {source if after else f"%s = stablehlo.abs %x : {image}"}
          %0 = "stablehlo.reduce_window"(%s, %low) ({{
            ^bb0(%a: tensor<{NAMES[dtype]}>, %b: tensor<{NAMES[dtype]}>):
              %1 = stablehlo.maximum %a, %b : tensor<{NAMES[dtype]}>
              stablehlo.return %1 : tensor<{NAMES[dtype]}>
          }}) {{window_dimensions = array<i64: 1, 1, {k}, {k}>, window_strides = array<i64: 1, 1, {stride}, {stride}>,
               window_dilations = array<i64: 1, 1, {step}, {step}>,
               padding = dense<[[0, 0], [0, 0], [{low}, {high}], [{low}, {high}]]> : tensor<4x2xi64>}}
            : ({image}, tensor<{NAMES[dtype]}>) -> {result}
          return %0 : {result}
        }}""")
    x, unit = _random(dtype, n, c, h, w), torch.eye(c, dtype=dtype)[:, :, None, None]
    if n and not after:  # the product with a unit matrix would spread these
        x[0, 0, 3, 4], x[0, -1, 5:] = float("nan"), float("-inf")
    actual = run([x.to("neuron"), unit.to("neuron")])[0].cpu()
    padded = F.pad(x if after else x.abs(), [low, high] * 2, value=float("-inf"))
    reach = [padded[:, :, i * step :, j * step :] for i in range(k) for j in range(k)]
    windows = [part[:, :, ::stride, ::stride][:, :, :p, :q] for part in reach]
    expected = torch.stack(windows).amax(0) if n else windows[0]
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
