"""A type in two: what depends on arguments known beforehand, and the rest.

Of ``act(W x + U h)`` in a recurrent cell, W x depends on the input alone. Once for all nodes it is
one large product instead of many small ones, and its result lies in the order in which the
batches read it.
"""
import json
from typing import FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx

from ..record.spec import Spec
from .node_type import Argument, Kind, NodeType
from .passes.horizontal import horizontal
from .rewrite import load
from .rowwise import Verdict, analyse, infer_shape
from .trace import INPUT, is_argument

_HEAVY = frozenset('FullyConnected Convolution dot batch_dot'.split())
Entry = Tuple[int, int]


class Split(NamedTuple):
    """The two types.

    Attributes
    ----------
    positions : tuple of int
        The arguments that `early` takes.
    early : NodeType
        Its outputs are what `late` needs of it.
    late : NodeType
        Takes the arguments of the whole, and the outputs of `early` after them.
    """

    positions: Tuple[int, ...]
    early: NodeType
    late: NodeType


def split(node_type: NodeType, positions: FrozenSet[int], fused: bool) -> Optional[Split]:
    """Hoist what depends only on the arguments at these positions.

    Parameters
    ----------
    node_type : NodeType
    positions : frozenset of int
    fused : bool
        With horizontal fusion before (see `passes.horizontal`): one result for all gates.

    Returns
    -------
    Split or None
        None if there is no product to hoist.
    """
    if (positions, fused) not in node_type.splits:
        node_type.splits[positions, fused] = _split(node_type, positions, fused)
    return node_type.splits[positions, fused]


def _split(node_type: NodeType, positions: FrozenSet[int], fused: bool) -> Optional[Split]:
    symbol = node_type.graph.symbol
    graph = json.loads((horizontal(symbol) if fused else symbol).tojson())
    nodes, heads = graph['nodes'], [tuple(head[:2]) for head in graph['heads']]
    early = _early_nodes(nodes, {INPUT % position for position in positions})
    crossing = _crossing(nodes, early)
    if (not any(nodes[index]['op'] in _HEAVY for index in early)
            or any(index in early for index, _ in heads)):
        return None
    read = {nodes[source[0]]['name'] for index in early for source in nodes[index]['inputs']}
    known = [position for position in sorted(positions) if INPUT % position in read]
    renamed = {INPUT % position: INPUT % index for index, position in enumerate(known)}
    early_nodes = [dict(node, name=renamed.get(node['name'], node['name'])) for node in nodes]
    first = _type_of_early(
        node_type, load(dict(graph, nodes=early_nodes, heads=[[*entry, 0] for entry in crossing])),
        known)
    if first is None:
        return None
    return Split(tuple(known), first, type_of_rest(node_type, graph, crossing, first.outputs))


def _early_nodes(nodes: List[dict], known: Set[str]) -> Set[int]:
    """Operators with an input that is known, and no other input that is not."""
    early: Set[int] = set()
    for index, node in enumerate(nodes):
        sources = [source[0] for source in node['inputs']]
        if node['op'] == 'null' or not sources:
            continue
        mine = [source in early or nodes[source]['name'] in known for source in sources]
        others = [source for source, is_early in zip(sources, mine) if not is_early]
        if any(mine) and all(nodes[source]['op'] == 'null'
                             and not is_argument(nodes[source]['name']) for source in others):
            early.add(index)
    return early


def _crossing(nodes: List[dict], early: Set[int]) -> List[Entry]:
    """What early operators give to others."""
    return sorted({(source[0], source[1]) for index, node in enumerate(nodes)
                   if index not in early for source in node['inputs'] if source[0] in early})


def _type_of_early(node_type: NodeType, symbol: mx.sym.Symbol, known: List[int]
                   ) -> Optional[NodeType]:
    names = set(symbol.list_inputs())
    arguments = tuple(node_type.arguments[position] for position in known)
    shapes = {INPUT % index: node_type.trial_shapes[INPUT % position]
              for index, position in enumerate(known) if INPUT % index in names}
    verdict = analyse(symbol, {name: shape[1:] for name, shape in shapes.items()},
                      node_type.mode.training)
    if verdict.verdict is not Verdict.PROVED or any(factor != 1 for factor in verdict.factors):
        return None
    _, outputs, _ = infer_shape(symbol, shapes)
    _, dtypes, _ = symbol.infer_type(**{
        INPUT % index: argument.arena[1] for index, argument in enumerate(arguments)
        if INPUT % index in names})
    return node_type.part(symbol, arguments, list(zip(outputs, dtypes)), shapes,
                          verdict.factors)


def type_of_rest(node_type: NodeType, graph: dict, crossing: List[Entry], specs: Sequence[Spec]
                 ) -> NodeType:
    """What is left of a type if others compute some entries of its graph.

    Parameters
    ----------
    graph : dict
        Its subgraph, as JSON has it.
    crossing : list of Entry
        They become arguments after those that the type has.
    specs : sequence of Spec
        Of these.
    """
    count, shift = len(node_type.arguments), len(crossing)
    # Variables come first: nodes are in an order in which inputs precede those that read them.
    place = {entry: index for index, entry in enumerate(crossing)}

    def moved(source: List[int]) -> List[int]:
        entry = (source[0], source[1])
        return [place[entry], 0, 0] if entry in place else [source[0] + shift] + source[1:]

    nodes = [{'op': 'null', 'name': INPUT % (count + index), 'inputs': []}
             for index in range(shift)]
    nodes += [dict(node, inputs=list(map(moved, node['inputs']))) for node in graph['nodes']]
    symbol = load(dict(graph, nodes=nodes, heads=list(map(moved, graph['heads']))))
    arguments = node_type.arguments + tuple(
        Argument(spec.arena, Kind.ROWS, True) for spec in specs)
    shapes = dict(node_type.trial_shapes)
    rows = next(iter(shapes.values()))[0]
    shapes.update({INPUT % (count + index): spec.shape if node_type.alone
                   else (rows,) + spec.row_shape for index, spec in enumerate(specs)})
    outputs = [(spec.shape, spec.dtype) for spec in node_type.outputs]
    return node_type.part(symbol, arguments, outputs, shapes, list(node_type.factors))
