"""Agenda-based batching: of the ready types, the one that lies least deep on average."""

from ..graph.graph import Graph
from .frontier import Frontier
from .protocol import Schedule
from .rules import LeastDeep


class AgendaScheduler:
    """Runs the ready type with the least mean depth, as DyNet does (Neubig et al., 2017 [1]_).

    Types whose nodes must run alone go first, since waiting does not make their batches larger.
    Of types with equal means the one with the lowest number goes first (DyNet prefers cheap
    operators there).

    Parameters
    ----------
    remaining : bool
        Whether the mean is taken over the nodes that have not run yet, after every batch anew, as
        ED-Batch's agenda does [2]_; better on trees and worse on chains in its benchmarks. DyNet
        takes it once, over all nodes.

    References
    ----------
    .. [1] Neubig, Goldberg and Dyer (2017). On-the-fly operation batching in dynamic computation
       graphs. https://arxiv.org/abs/1705.07860
    .. [2] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks
       via learned finite state machines. https://arxiv.org/abs/2302.03851
    """

    def __init__(self, remaining: bool = False) -> None:
        self.remaining = remaining
        self.name = 'agenda-remaining' if remaining else 'agenda'

    def __repr__(self) -> str:
        return f'AgendaScheduler(remaining={self.remaining})'

    def schedule(self, graph: Graph) -> Schedule:
        """Batches, each the whole ready set of a type."""
        frontier = Frontier(graph)
        frontier.finish(LeastDeep(graph, frontier, self.remaining))
        return frontier.schedule()
