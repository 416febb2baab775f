"""From a static subgraph to one compiled call per batch: ``take -> body -> outputs``."""
from typing import List, NamedTuple, Tuple

import mxnet as mx
from mxnet._ctypes.ndarray import CachedOp

from .empty import specialise
from .node_type import NodeType
from .passes import apply_passes
from .trace import INPUT

SLICE, GATHER, EMPTY = 'slice', 'gather', 'empty'
_ARENA, _INDEX = 'edb_arena%d', 'edb_index%d'


class Source(NamedTuple):
    """What a compiled call gets at one position.

    Attributes
    ----------
    kind : str
        ``'rows'`` (a slice of an arena), ``'arena'``, ``'index'`` or ``'parameter'``.
    position : int
        Which argument, or which parameter of the type.
    """

    kind: str
    position: int


class Program(NamedTuple):
    """A type's static subgraph, compiled for one way of reading its arguments.

    Attributes
    ----------
    call : CachedOp
    sources : tuple of Source
        What to pass, in order.
    """

    call: CachedOp
    sources: Tuple[Source, ...]


def program_for(node_type: NodeType, reads: Tuple[str, ...]) -> Program:
    """The program of a type for arguments read as `reads` says (compiled at first use).

    Parameters
    ----------
    node_type : NodeType
    reads : tuple of str
        `SLICE`, `GATHER` or `EMPTY` for each argument.
    """
    program = node_type.programs.get(reads)
    if program is None:
        program = node_type.programs[reads] = _compile(node_type, reads)
    return program


def _compile(node_type: NodeType, reads: Tuple[str, ...]) -> Program:
    symbol = node_type.graph.symbol.__copy__()
    empty = {INPUT % position for position, read in enumerate(reads) if read == EMPTY}
    if empty and node_type.neutral:  # else execution gives one row of zeros, as eager code does
        specialised = specialise(symbol, empty)
        symbol = symbol if specialised is None else specialised
    symbol = apply_passes(symbol, node_type.trial_shapes)
    gathers = {INPUT % position: mx.sym.take(mx.sym.var(_ARENA % position),
                                             mx.sym.var(_INDEX % position))
               for position, read in enumerate(reads) if read == GATHER}
    inputs = set(symbol.list_inputs())
    gathers = {name: gather for name, gather in gathers.items() if name in inputs}
    if gathers:
        symbol._compose(**gathers)
    known = {name: Source('parameter', i) for i, name in enumerate(node_type.graph.parameters)}
    for position in range(len(reads)):
        known[INPUT % position] = Source('rows', position)
        known[_ARENA % position] = Source('arena', position)
        known[_INDEX % position] = Source('index', position)
    sources: List[Source] = [known[name] for name in symbol.list_inputs()]
    return Program(CachedOp(symbol), tuple(sources))


