"""Does the padding of ragged arguments leave a static subgraph's results alone?

Ragged arguments come as (N, K, ...), padded with zeros along axis 1; what each operator makes of
that is a rule (see `ops.padding`). If every path from a ragged argument to a result ends in an
exact sum, calls with any number of values are one type, in gradients too: what is zero gets and
gives none. All else is not proved, and such calls batch only with calls of the same lengths, which
need no padding.
"""

from typing import Dict, FrozenSet, NamedTuple, Optional, Set, Tuple

from ..ops import op_of
from ..ops.padding import At, Unproved
from .ir import Entry, Subgraph


class _PaddingState(NamedTuple):
    """What an entry is at the padding, and the ragged inputs that its axis 1 stems from."""

    at: At
    sources: FrozenSet[str]


class Padding(NamedTuple):
    """Under which conditions padding changes nothing.

    Attributes
    ----------
    neutral : bool
        False: under none that is known.
    linked : frozenset of (str, str)
        Ragged inputs that meet along axis 1: a call must give them equally many values.
    lengths : frozenset of (str, str)
        (input, ragged input): a call must give the length of the latter as the former.
    """

    neutral: bool
    linked: FrozenSet[Tuple[str, str]]
    lengths: FrozenSet[Tuple[str, str]]


def padding_of(graph: Subgraph, ragged: Set[str]) -> Padding:
    """Analyse the padding of the inputs named in `ragged`."""
    states: Dict[Entry, Optional[_PaddingState]] = {}
    linked: Set[Tuple[str, str]] = set()
    lengths: Set[Tuple[str, str]] = set()
    try:
        for index, node in enumerate(graph.nodes):
            if node.is_variable:
                if node.name in ragged:
                    states[Entry(index)] = _PaddingState(At.ZERO, frozenset([node.name]))
                continue
            inputs = [states.get(entry) for entry in node.inputs]
            if not any(inputs):
                continue
            sources = frozenset().union(*[state.sources for state in inputs if state])
            linked.update((a, b) for a in sources for b in sources if a < b)
            rule = op_of(node.op).padding
            if rule is None:
                raise Unproved
            at = rule(node.attrs, [state and state.at for state in inputs])
            states[Entry(index)] = None if at is None else _PaddingState(at, sources)
            if node.op == 'SequenceMask':
                given = graph.nodes[node.inputs[1].node]
                if not given.is_variable:
                    raise Unproved
                lengths.update((given.name, source) for source in sources)
        if any(map(states.get, graph.heads)):
            raise Unproved
    except Unproved:
        return Padding(False, frozenset(), frozenset())
    return Padding(True, frozenset(linked), frozenset(lengths))
