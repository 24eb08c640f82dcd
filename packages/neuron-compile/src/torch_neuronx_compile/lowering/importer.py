"""FX to the torch dialect."""

import io

from torch import fx
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter


def import_graph(graph: fx.Graph) -> bytes:
    """Return the bytecode of a module with one function ``main``; raises what the importer raises."""
    context = ir.Context()
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context)
    importer.import_stateless_graph(graph, func_name="main")
    output = io.BytesIO()
    importer.module.operation.write_bytecode(output)
    return output.getvalue()
