"""A type in two: looking up rows of tables whose gradients are row_sparse, and the rest.

What a type computes gets dense gradients, as large as the parameters. For a table of words with
``gluon.nn.Embedding(..., sparse_grad=True)`` that would be most of a training step, so its rows are
looked up outside, by MXNet's own operator, and come to the type as an argument.
"""

from typing import Any, FrozenSet, List, NamedTuple, Optional, Tuple, Union

from mxnet import gluon

from .hoisting import dtypes_of, of_arguments, type_of_rest
from .ir import Entry, Node, Subgraph
from .node_type import NodeType
from .rowwise import Verdict, analyse
from .spec import Spec, spec_of
from .trace import INPUT


class LookUps(NamedTuple):
    """What a type looks up, and the rest of it.

    Attributes
    ----------
    positions : tuple of int
        The arguments that the ids depend on, which are those of `ids`.
    ids : NodeType
        Computes the ids: one output for each look-up, in the table that ``ids.tables`` has there.
    found : tuple of Spec
        The rows that are looked up.
    rest : NodeType or None
        Takes the arguments of the whole, and the rows after them. None if these rows are the
        results of the whole, in this order.
    """

    positions: Tuple[int, ...]
    ids: NodeType
    found: Tuple[Spec, ...]
    rest: Union[NodeType, Any]


def has_sparse_gradient(parameter: gluon.Parameter) -> bool:
    """Whether a parameter is trained with a gradient of the rows that were used only."""
    return parameter._grad_stype == 'row_sparse' and parameter.grad_req != 'null'


def look_ups(node_type: NodeType) -> Optional[LookUps]:
    """How to split a type so that the gradients of its tables are row_sparse.

    Returns
    -------
    LookUps or None
        None if it is not recorded by autograd or has no such tables; nor are look-ups split off
        whose ids are random, or are not one line for each row of the arguments: these tables get
        dense gradients, which are converted.
    """
    if not node_type.mode.recording or node_type.tables or node_type.eager:
        return None
    tables = frozenset(
        name
        for name, parameter in node_type.graph.parameters.items()
        if has_sparse_gradient(parameter)
    )
    if not tables:
        return None
    if tables not in node_type.splits:
        node_type.splits[tables] = _split(node_type, tables)
    return node_type.splits[tables]


def _split(node_type: NodeType, tables: FrozenSet[str]) -> Optional[LookUps]:
    graph = node_type.graph.subgraph

    def table_of(node: Node) -> str:
        return graph.nodes[node.inputs[1].node].name

    crossing = [
        Entry(index)
        for index, node in enumerate(graph.nodes)
        if node.op == 'Embedding'
        and table_of(node) in tables
        and _type_of_ids(node_type, [node]) is not None
    ]
    if not crossing:
        return None
    is_all = set(crossing) == set(graph.heads)
    crossing = list(graph.heads) if is_all else crossing
    embeddings = [graph.nodes[entry.node] for entry in crossing]
    together = _type_of_ids(node_type, embeddings)
    assert together is not None  # as each of them has one
    positions, ids = together
    ids.tables = tuple(node_type.graph.parameters[table_of(node)] for node in embeddings)
    found = tuple(
        spec_of(spec.shape + table.shape[1:], table.dtype, node_type.ctx)
        for spec, table in zip(ids.outputs, ids.tables)
    )
    rest = None if is_all else type_of_rest(node_type, graph, crossing, found)
    return LookUps(positions, ids, found, rest)


def _type_of_ids(
    node_type: NodeType, embeddings: List[Node]
) -> Optional[Tuple[Tuple[int, ...], NodeType]]:
    """Arguments, and type, of what gives the ids of these look-ups, if it can be told apart."""
    graph = node_type.graph.subgraph
    heads = [node.inputs[0] for node in embeddings]
    names = {graph.nodes[index].name for index in graph.ancestors(heads)}
    positions = tuple(
        position for position in range(len(node_type.arguments)) if INPUT % position in names
    )
    if not positions:
        return None
    graph, arguments, shapes = of_arguments(node_type, Subgraph.of(graph.nodes, heads), positions)
    factors = [1] * len(heads)
    if not node_type.alone:
        verdict = analyse(
            graph, {name: shape[1:] for name, shape in shapes.items()}, node_type.mode.training
        )
        if verdict.verdict is not Verdict.PROVED or verdict.factors != factors:
            return None
    ids = node_type.part(
        graph, arguments, graph.results(shapes, dtypes_of(arguments)), shapes, factors
    )
    if ids.random:
        return None
    ids.verified = ids.verified_padding = True  # the rest of the type is compared
    ids.not_native = 'computes ids'
    return positions, ids
