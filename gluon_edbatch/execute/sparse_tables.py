"""Look up rows of tables with row_sparse gradients on the user's own tape.

An evaluation is one function for autograd, from which MXNet takes dense gradients only. So MXNet's
`Embedding`, recorded before that function, looks these rows up, and they are inputs of the
function. Their gradients go back through `Embedding`, which knows which rows were used.
"""

from collections.abc import Sequence

import mxnet as mx
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.plan.plan import Batch

from ..mx.arrays import alias, detached, gradient_stype, reshaped, rows_of
from ..mx.invoke import invoke, operator_handle
from ..mx.modes import modes
from ..mx.mutation_guard import MutationGuard
from ..subgraph.ir import INPUT, Node
from .cached.compiled_graph import EMPTY, SLICE
from .verify import run_unrecorded

_NAMES = ['input_dim', 'output_dim', 'dtype', 'sparse_grad']
_SAME_ELEMENTS = frozenset(('_copy', 'expand_dims', 'Flatten', 'Reshape', 'squeeze'))


def look_up(state, batch: Batch) -> None:
    """Run a batch that computes ids: the rows of the tables appear in the arenas."""
    node_type = batch.node_type
    inputs = [state.read(batch, position) for position in range(len(batch.reads))]
    given = {INPUT % position: array for position, array in enumerate(inputs)}
    graph = node_type.graph.subgraph
    sources = [_source(graph.nodes, head.node) for head in graph.heads]
    kinds = tuple([EMPTY if read.length == 0 else SLICE for read in batch.reads])
    # Autograd's tape keeps ids, which therefore may not lie in memory that is reused.
    stay = all([state.plan.arenas[read.arena].is_from_host for read in batch.reads])
    if stay and EMPTY not in kinds and given.keys() >= {*sources}:  # most often
        ids = [given[name] for name in sources]
    else:
        ids = run_unrecorded(state, node_type, inputs, kinds, node_type.mode.training)
    for which, table, write in zip(ids, node_type.tables, batch.writes):
        check_request(table)
        rows = rows_of(state.arenas[write.arena], write.begin, write.end)
        which = reshaped(which, rows.shape[:-1])
        _record(state.recording.model.of(table, node_type.ctx), which, rows)
        state.given.append((rows, write.arena, write.begin, write.end))
        state.looked_up = True


def _source(nodes: Sequence[Node], place: int) -> str:
    """Return the variable, or the operator, whose elements a node has, in their order."""
    while nodes[place].op in _SAME_ELEMENTS:
        place = nodes[place].inputs[0].node
    return nodes[place].name


def _record(table: MutationGuard, ids: NDArray, rows: NDArray) -> None:
    """Write rows of a table, as it was when recorded, and put them on autograd's tape."""
    own: NDArray = alias(table.array)
    attributes = [*own.shape, own.dtype.__name__, True]

    def embed(table: NDArray, rows: NDArray) -> None:  # ``mx.nd.Embedding`` takes twice as long
        invoke(operator_handle('Embedding'), [ids, table], _NAMES, attributes, rows, False, False)

    with modes(recording=True):
        embed(own, rows)
    if table.copy is not None:  # written since; autograd asks for ids only
        embed(table.copy, detached(rows))


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
