"""The emulator's own copy of a program: which operations become calls of ATen, and which stay with XLA."""

import pytest
from jaxlib.mlir import ir

from torch_neuronx_compile.compilers.emulator.rewrite.pipeline import rewrite
from torch_neuronx_compile.worker.canonical import new_context, walk


def _rewritten(body: str) -> list[str]:
    """Return the operations that are left, calls by their target."""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"module {{ {body} }}")
        rewrite(module)
        assert module.operation.verify()
        assert len(list(module.body)) == 1
        return [
            ir.StringAttr(operation.attributes["call_target_name"]).value
            if operation.name == "stablehlo.custom_call"
            else operation.name.removeprefix("stablehlo.")
            for operation in walk(module)
            if operation.name.startswith("stablehlo.")
        ]


def test_transposes_reshapes_and_slices_of_a_product_go_into_its_call() -> None:
    found = _rewritten("""
        func.func @main(%a: tensor<4x32x64xf32>, %b: tensor<96x64xf32>) -> tensor<128x32xf32> {
          %0 = stablehlo.reshape %a : (tensor<4x32x64xf32>) -> tensor<128x64xf32>
          %1 = stablehlo.slice %b [8:40, 0:64] : (tensor<96x64xf32>) -> tensor<32x64xf32>
          %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
          %3 = stablehlo.dot_general %0, %2, contracting_dims = [1] x [0]
            : (tensor<128x64xf32>, tensor<64x32xf32>) -> tensor<128x32xf32>
          return %3 : tensor<128x32xf32>
        }""")
    assert found == ["neuron_contract"]


def test_products_of_floats_are_calls_and_products_of_integers_stay() -> None:
    found = _rewritten("""
        func.func @main(%a: tensor<8x8xf32>, %b: tensor<64x64xi32>) -> (tensor<8x8xf32>, tensor<64x64xi32>) {
          %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
            : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
          %1 = stablehlo.dot_general %b, %b, contracting_dims = [1] x [0]
            : (tensor<64x64xi32>, tensor<64x64xi32>) -> tensor<64x64xi32>
          return %0, %1 : tensor<8x8xf32>, tensor<64x64xi32>
        }""")
    assert found == ["neuron_contract", "dot_general"]


def test_a_softmax_is_one_call() -> None:
    found = _rewritten("""
        func.func @main(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
          %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
            : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
          %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
          %2 = stablehlo.subtract %x, %1 : tensor<64x128xf32>
          %3 = stablehlo.exponential %2 : tensor<64x128xf32>
          %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
            : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
          %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
          %6 = stablehlo.divide %3, %5 : tensor<64x128xf32>
          return %6 : tensor<64x128xf32>
        }""")
    assert found == ["neuron_softmax"]


def test_a_quotient_by_another_rows_sum_is_no_softmax() -> None:
    found = _rewritten("""
        func.func @main(%x: tensor<64x128xf32>, %y: tensor<64x128xf32>) -> tensor<64x128xf32> {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %0 = stablehlo.exponential %x : tensor<64x128xf32>
          %1 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
            : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
          %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
          %3 = stablehlo.divide %0, %2 : tensor<64x128xf32>
          return %3 : tensor<64x128xf32>
        }""")
    assert found == ["exponential", "neuron_reduce", "broadcast_in_dim", "divide"]


def test_a_sum_that_does_not_start_from_zero_stays() -> None:
    found = _rewritten("""
        func.func @main(%x: tensor<64x128xf32>) -> tensor<64xf32> {
          %one = stablehlo.constant dense<1.0> : tensor<f32>
          %0 = stablehlo.reduce(%x init: %one) applies stablehlo.add across dimensions = [1]
            : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
          return %0 : tensor<64xf32>
        }""")
    assert found == ["constant", "reduce", "add", "return"]


def test_small_sums_of_narrow_floats_are_added_in_float32() -> None:
    found = _rewritten("""
        func.func @main(%x: tensor<5x5xbf16>, %y: tensor<5x5xbf16>) -> (tensor<5xbf16>, tensor<5xbf16>) {
          %zero = stablehlo.constant dense<0.0> : tensor<bf16>
          %least = stablehlo.constant dense<0xFF80> : tensor<bf16>
          %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
            : (tensor<5x5xbf16>, tensor<bf16>) -> tensor<5xbf16>
          %1 = stablehlo.reduce(%y init: %least) applies stablehlo.maximum across dimensions = [1]
            : (tensor<5x5xbf16>, tensor<bf16>) -> tensor<5xbf16>
          return %0, %1 : tensor<5xbf16>, tensor<5xbf16>
        }""")
    sums = ["convert", "convert", "reduce", "add", "return", "convert"]
    assert found == ["constant", "constant", *sums, "reduce", "maximum", "return"]


def test_a_reversed_kernel_over_a_stretched_image_is_one_call() -> None:
    found = _rewritten("""
        func.func @main(%g: tensor<2x8x8x8xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x4x16x16xf32> {
          %0 = stablehlo.reverse %w, dims = [2, 3] : tensor<8x4x3x3xf32>
          %1 = stablehlo.convolution(%g, %0) dim_numbers = [b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1],
            window = {stride = [1, 1], pad = [[1, 2], [1, 2]], lhs_dilate = [2, 2], rhs_dilate = [1, 1]}
            {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
            : (tensor<2x8x8x8xf32>, tensor<8x4x3x3xf32>) -> tensor<2x4x16x16xf32>
          return %1 : tensor<2x4x16x16xf32>
        }""")
    assert found == ["neuron_convolve"]


def test_another_search_of_a_window_stays() -> None:
    body = """
        func.func @main(%x: tensor<1x2x8x8xf32>, %p: tensor<1x2x8x8xi32>) -> tensor<1x2x4x4xf32> {
          %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %last = stablehlo.constant dense<2147483647> : tensor<i32>
          %0:2 = "stablehlo.reduce_window"(%x, %p, %low, %last) ({
            ^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):
              %1 = stablehlo.compare GT, %b, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
              %2 = stablehlo.select %1, %b, %a : tensor<i1>, tensor<f32>
              %3 = stablehlo.select %1, %j, %i : tensor<i1>, tensor<i32>
              stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
          }) {window_dimensions = array<i64: 1, 1, 2, 2>, window_strides = array<i64: 1, 1, 2, 2>}
            : (tensor<1x2x8x8xf32>, tensor<1x2x8x8xi32>, tensor<f32>, tensor<i32>)
            -> (tensor<1x2x4x4xf32>, tensor<1x2x4x4xi32>)
          return %0#0 : tensor<1x2x4x4xf32>
        }"""
    # Without the rule for NaN this is not what a plain maximum computes.
    assert "select" in _rewritten(body)


def _convolved(rest: str, result: str) -> list[str]:
    return _rewritten(f"""
        func.func @main(%x: tensor<2x4x16x16xf32>, %w: tensor<8x4x3x3xf32>) -> {result} {{
          %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
            window = {{pad = [[1, 1], [1, 1]]}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
            : (tensor<2x4x16x16xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x16x16xf32>
          {rest}
        }}""")


def _pooled(padding: str, extent: int) -> list[str]:
    kind = f"tensor<2x8x{extent}x{extent}xf32>"
    rest = f"""
      %1 = "stablehlo.reduce_window"(%0, %low) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %2 = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %2 : tensor<f32>
      }}) {{window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 2, 2>,
           padding = dense<[[0, 0], [0, 0], {padding}, {padding}]> : tensor<4x2xi64>}}
        : (tensor<2x8x16x16xf32>, tensor<f32>) -> {kind}
      return %1 : {kind}"""
    return _convolved(rest, kind)


def test_windows_of_any_padding_are_one_call() -> None:
    assert _pooled("[1, 0]", 8) == ["neuron_convolve", "neuron_pool"]
    assert _pooled("[1, 1]", 8) == ["neuron_convolve", "neuron_pool"]
    assert _pooled("[0, 1]", 8) == ["neuron_convolve", "neuron_pool"]  # torch alone would have seven windows
    assert _pooled("[2, 2]", 9) == ["neuron_convolve", "neuron_pool"]  # more than half of a window


def test_a_transpose_of_a_convolution_is_written_by_its_call() -> None:
    found = _convolved(
        """%1 = stablehlo.transpose %0, dims = [1, 0, 2, 3] : (tensor<2x8x16x16xf32>) -> tensor<8x2x16x16xf32>
          return %1 : tensor<8x2x16x16xf32>""",
        "tensor<8x2x16x16xf32>",
    )
    assert found == ["neuron_convolve"]


def test_results_of_the_program_are_row_major_and_what_lies_between_calls_is_channels_last() -> None:
    def orders(last: str) -> list[list[int]]:
        with new_context(), ir.Location.unknown():
            module = ir.Module.parse(f"""module {{
              func.func @main(%x: tensor<2x8x16x16xf32>, %w: tensor<8x8x3x3xf32>) -> tensor<2x8x16x16xf32> {{
                %0 = stablehlo.convolution(%x, %w) {_SAME}
                %1 = stablehlo.negate %0 : tensor<2x8x16x16xf32>
                %2 = stablehlo.convolution(%1, %w) {_SAME}
                %3 = {last} : tensor<2x8x16x16xf32>
                return %3 : tensor<2x8x16x16xf32>
              }}
            }}""")
            rewrite(module)
            return [
                list(ir.DenseIntElementsAttr(ir.ArrayAttr(found.attributes["result_layouts"])[0]))
                for found in walk(module)
                if found.name == "stablehlo.custom_call"
            ]

    row_major, channels_last = [3, 2, 1, 0], [1, 3, 2, 0]
    assert orders("stablehlo.negate %2") == [channels_last, row_major]
    assert orders("stablehlo.add %1, %2") == [row_major, row_major]


_SAME = """dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]}
  {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
  : (tensor<2x8x16x16xf32>, tensor<8x8x3x3xf32>) -> tensor<2x8x16x16xf32>"""


def _attention(queries: str, options: str = "causal = true, scale = 0.5 : f64") -> str:
    return f"""
        func.func private @defined(%q: {queries}, %k: {queries}, %v: {queries}) -> {queries} {{
          %0 = stablehlo.add %q, %k : {queries}
          return %0 : {queries}
        }}
        func.func @main(%q: {queries}, %k: {queries}, %v: {queries}) -> {queries} {{
          %0 = stablehlo.composite "neuron.attention" %q, %k, %v
            {{composite_attributes = {{{options}}}, decomposition = @defined}}
            : ({queries}, {queries}, {queries}) -> {queries}
          return %0 : {queries}
        }}"""


def test_attention_is_one_call() -> None:
    assert _rewritten(_attention("tensor<2x4x32x32xf32>")) == ["neuron_attention"]


@pytest.mark.parametrize("queries", ["tensor<1x1x4x8xf32>", "tensor<2x4x64x8xf64>"], ids=["small", "float64"])
def test_attention_that_the_kernel_does_not_serve_is_what_its_definition_says(queries: str) -> None:
    assert _rewritten(_attention(queries)) == ["add"]


def test_a_composite_of_another_name_is_what_its_definition_says() -> None:
    body = _attention("tensor<2x4x64x8xf32>").replace("neuron.attention", "somebody.else")
    assert _rewritten(body) == ["add"]


def test_a_gradient_that_nothing_reads_is_not_asked_for() -> None:
    rows, row, sums = "tensor<64x128xf32>", "tensor<128xf32>", "tensor<64x1xf32>"
    body = f"""
        func.func private @defined(%g: {rows}, %x: {rows}, %m: {sums}, %r: {sums}) -> ({rows}, {row}, {row}) {{
          %zero = stablehlo.constant dense<0.0> : {row}
          return %g, %zero, %zero : {rows}, {row}, {row}
        }}
        func.func @main(%g: {rows}, %x: {rows}, %m: {sums}, %r: {sums}) -> {rows} {{
          %0:3 = stablehlo.composite "neuron.layer_norm_backward" %g, %x, %m, %r
            {{composite_attributes = {{axes = 1 : i64}}, decomposition = @defined}}
            : ({rows}, {rows}, {sums}, {sums}) -> ({rows}, {row}, {row})
          return %0#0 : {rows}
        }}"""
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(f"module {{ {body} }}")
        rewrite(module)
        (call,) = (found for found in walk(module) if found.name == "stablehlo.custom_call")
        assert ir.StringAttr(call.attributes["call_target_name"]).value == "neuron_layer_norm_backward"
        assert list(ir.DenseI64ArrayAttr(ir.DictAttr(call.attributes["backend_config"])["wanted"])) == [1, 0, 0]
