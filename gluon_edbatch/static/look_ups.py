"""A type in two: looking up rows of tables whose gradients are row_sparse, and the rest.

What a type computes gets dense gradients, as large as the parameters. For a table of words with
``gluon.nn.Embedding(..., sparse_grad=True)`` that would be most of a training step, so its rows are
looked up outside, by MXNet's own operator, and come to the type as an argument.
"""
import json
from typing import List, NamedTuple, Optional, Set, Tuple

from mxnet import gluon

from ..record.spec import Spec, spec_of
from .hoisting import Entry, type_of_rest
from .node_type import NodeType
from .rewrite import load
from .rowwise import Verdict, analyse, infer_shape
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
    rest: Optional[NodeType]


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
    tables = frozenset(name for name, parameter in node_type.graph.parameters.items()
                       if has_sparse_gradient(parameter))
    if not tables:
        return None
    if tables not in node_type.splits:
        node_type.splits[tables] = _split(node_type, tables)
    return node_type.splits[tables]


def _split(node_type: NodeType, tables) -> Optional[LookUps]:
    graph = json.loads(node_type.graph.symbol.tojson())
    nodes, heads = graph['nodes'], [tuple(head[:2]) for head in graph['heads']]
    crossing = [(index, 0) for index, node in enumerate(nodes)
                if node['op'] == 'Embedding' and nodes[node['inputs'][1][0]]['name'] in tables
                and _type_of_ids(node_type, graph, [node]) is not None]
    if not crossing:
        return None
    is_all = set(crossing) == set(heads)
    crossing = heads if is_all else crossing
    embeddings = [nodes[index] for index, _ in crossing]
    positions, ids = _type_of_ids(node_type, graph, embeddings)
    ids.tables = tuple(node_type.graph.parameters[nodes[node['inputs'][1][0]]['name']]
                       for node in embeddings)
    found = tuple(spec_of(spec.shape + table.shape[1:], table.dtype, node_type.ctx)
                  for spec, table in zip(ids.outputs, ids.tables))
    rest = None if is_all else type_of_rest(
        node_type, _with_copied_heads(graph, crossing), crossing, found)
    return LookUps(positions, ids, found, rest)


def _type_of_ids(node_type: NodeType, graph: dict, embeddings: List[dict]
                 ) -> Optional[Tuple[Tuple[int, ...], NodeType]]:
    """Arguments, and type, of what gives the ids of these look-ups, if it can be told apart."""
    heads = [tuple(node['inputs'][0][:2]) for node in embeddings]
    needed = _ancestors(graph['nodes'], heads)
    names = {graph['nodes'][index]['name'] for index in needed}
    positions = tuple(position for position in range(len(node_type.arguments))
                      if INPUT % position in names)
    if not positions:
        return None
    renamed = {INPUT % position: INPUT % index for index, position in enumerate(positions)}
    symbol = load(_with_copied_heads(
        dict(graph, heads=[[*head, 0] for head in heads],
             nodes=[dict(node, name=renamed.get(node['name'], node['name']))
                    for node in graph['nodes']]), heads))
    shapes = {INPUT % index: node_type.trial_shapes[INPUT % position]
              for index, position in enumerate(positions)}
    factors = [1] * len(heads)
    if not node_type.alone:
        verdict = analyse(symbol, {name: shape[1:] for name, shape in shapes.items()},
                          node_type.mode.training)
        if verdict.verdict is not Verdict.PROVED or verdict.factors != factors:
            return None
    arguments = tuple(node_type.arguments[position] for position in positions)
    _, outputs, _ = infer_shape(symbol, shapes)
    _, dtypes, _ = symbol.infer_type(**{INPUT % index: argument.arena.dtype
                                        for index, argument in enumerate(arguments)})
    ids = node_type.part(symbol, arguments, list(zip(outputs, dtypes)), shapes, factors)
    if ids.random:
        return None
    ids.verified = ids.verified_padding = True  # the rest of the type is compared
    ids.not_native = 'computes ids'
    return positions, ids


def _ancestors(nodes: List[dict], heads: List[Entry]) -> Set[int]:
    """All nodes that these entries need."""
    needed: Set[int] = set()
    waiting = [index for index, _ in heads]
    while waiting:
        index = waiting.pop()
        if index not in needed:
            needed.add(index)
            waiting += [source[0] for source in nodes[index]['inputs']]
    return needed


def _with_copied_heads(graph: dict, entries: List[Entry]) -> dict:
    """The graph with a copy of each head that is among these entries."""
    nodes, heads = list(graph['nodes']), []
    for head in graph['heads']:
        if tuple(head[:2]) in entries:
            nodes.append({'op': '_copy', 'name': f'edb_copied{len(nodes)}', 'inputs': [head]})
            head = [len(nodes) - 1, 0, 0]
        heads.append(head)
    return dict(graph, nodes=nodes, heads=heads)
