"""Look up rows of tables with row_sparse gradients on the user's own tape.

An evaluation is one function for autograd, from which MXNet takes dense gradients only. So MXNet's
`Embedding`, recorded before that function, looks these rows up, and they are inputs of the
function. Their gradients go back through `Embedding`, which knows which rows were used.
"""

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..mx.arrays import alias, detached, gradient_stype
from ..mx.modes import modes
from ..mx.mutation_guard import MutationGuard
from ..plan.plan import Batch
from ..subgraph.trace import INPUT
from .cached.compiled_graph import EMPTY, SLICE
from .verify import run_unrecorded


def look_up(state, batch: Batch) -> None:
    """Run a batch that computes ids: the rows of the tables appear in the arenas."""
    node_type = batch.node_type
    inputs = [state.read(batch, position) for position in range(len(batch.reads))]
    graph = node_type.graph.subgraph
    is_given = all([graph.nodes[head.node].is_variable for head in graph.heads])
    if is_given and all([read.length != 0 for read in batch.reads]):  # most often
        given = {INPUT % position: array for position, array in enumerate(inputs)}
        ids = [given[graph.nodes[head.node].name] for head in graph.heads]
    else:
        kinds = tuple([EMPTY if read.length == 0 else SLICE for read in batch.reads])
        ids = run_unrecorded(state, node_type, inputs, kinds, node_type.mode.training)
    for which, table, write in zip(ids, node_type.tables, batch.writes):
        check_request(table)
        rows = state.arenas[write.arena]._slice(write.begin, write.end)
        _record(state.recording.model.of(table, node_type.ctx), which, rows)
        state.given.append((rows, write.arena, write.begin, write.end))
        state.looked_up = True


def _record(table: MutationGuard, ids: NDArray, rows: NDArray) -> None:
    """Write rows of a table, as it was when recorded, and put them on autograd's tape."""
    own: NDArray = alias(table.array)
    sizes = dict(input_dim=own.shape[0], output_dim=own.shape[1], dtype=np.dtype(own.dtype).name)
    with modes(recording=True):
        mx.nd.Embedding(ids, own, out=rows, sparse_grad=True, **sizes)
    if table.copy is not None:  # written since; autograd asks for ids only
        mx.nd.Embedding(ids, table.copy, out=detached(rows), **sizes)


def check_request(parameter: gluon.Parameter) -> None:
    """Raise ValueError for ``grad_req='add'``: MXNet cannot add to a row_sparse gradient."""
    if parameter.grad_req == 'add':
        raise ValueError(
            f'parameter {parameter.name} has a row_sparse gradient, to which MXNet '
            f"cannot add; use grad_req='write', or sparse_grad=False"
        )


def with_dense_gradient(array: NDArray) -> NDArray:
    """Return an input for an autograd function; its dense gradient becomes row_sparse if needed."""
    if gradient_stype(array) in (None, 'default'):
        return array
    with modes(recording=True):
        return mx.nd.identity(alias(array))
