"""Prove how few batches a graph needs (see `fewest_batches`)."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple, Optional

import numpy as np

from ..graph.graph import Graph
from .bound import lower_bound, path_counts
from .frontier import Frontier

_NEW = 4  # paths that are added at a time
_KINDS = 8  # types that begin with a path of their own
_CLASHES = 3  # types, those with the most batches, whose pairs are looked at
_TABLES = 48  # tables of pairs that are kept
_CELLS = 1 << 22  # of tables that are computed at a time
_LAYER = 100  # states that cost as much as one more batch of all states
Path = tuple[int, ...]


class Fewest(NamedTuple):
    """A number of batches that no schedule goes below; `proved` if some schedule reaches it."""

    batches: int
    proved: bool


def fewest_batches(graph: Graph, effort: int = 1_000_000) -> Fewest:
    """Return a lower bound of the number of batches, and whether it is the optimum.

    Parameters
    ----------
    graph : Graph
        The graph.
    effort : int
        Partial schedules to look at. If more were needed, the bound may be below the optimum.

    Returns
    -------
    Fewest
        Its bound is at least that of `lower_bound`.

    Notes
    -----
    It is never wrong to run all ready nodes of a type. So a schedule is a word of types, and it is
    complete if the types along each path of the graph are a subsequence of the word. The optimum is
    the shortest common supersequence of all paths. That of some paths is a lower bound. Nodes that
    must run alone are a batch each, as soon as they are ready, and in no word.

    The search begins with the paths that have the most nodes of a type, and with `lower_bound`. It
    looks at all words that may be as short as the bound. If none has all paths as subsequences, the
    bound grows by one. If one has, but misses paths of the graph that were left out, it goes on
    with four of these. If it misses none, the bound is the optimum.

    A word is given up if it and what is left of the paths need more batches than the bound: for
    each type, the most nodes that are left on a path; or for two types, the shortest common
    supersequence of two paths without all other types, and the most nodes of each other type.
    """
    alone = int(graph.type_counts[graph.alone].sum())
    bound, left = lower_bound(graph) - alone, effort
    paths = _richest_paths(graph)
    while paths:
        search = _WordSearch(paths)
        bound, word, left = search.shortest(bound, left)
        if word is None:
            return Fewest(bound + alone, False)
        missed = _missed_paths(graph, word)
        if not missed:
            break
        paths += missed
    return Fewest(bound + alone, True)


def _richest_paths(graph: Graph) -> list[Path]:
    """Return paths with as many nodes of a type as there can be, for the most frequent types."""
    kinds = np.flatnonzero(~graph.alone & (graph.type_counts > 0))
    kinds = kinds[np.argsort(-graph.type_counts[kinds], kind='stable')[:_KINDS]]
    counts = path_counts(graph, kinds)
    return list(
        dict.fromkeys(
            _path_through(graph, int(column.argmax()), column) for column in counts.transpose()
        )
    )


def _missed_paths(graph: Graph, word: Sequence[int]) -> list[Path]:
    """Return some paths that a word does not have as subsequences, the longest ones first."""
    frontier, lonely = Frontier(graph), np.flatnonzero(graph.alone).tolist()
    for kind in [-1, *word]:
        if frontier.is_ready(kind):
            frontier.advance(kind)
        while any(frontier.is_ready(kind) and frontier.advance(kind) for kind in lonely):
            pass
    when = np.zeros(len(graph), np.intp)
    for number, nodes in enumerate(frontier.since(0)):
        when[nodes] = number
    left = [node for kind in frontier.kinds() for node in frontier.ready(kind).tolist()]
    left.sort(key=lambda node: -graph.height[node])
    found: dict[Path, None] = {}
    for node in left:
        found[_path_through(graph, node, when)] = None
        if len(found) == _NEW:
            break
    return list(found)


def _path_through(graph: Graph, node: int, key: np.ndarray) -> Path:
    """Return the types on a path: up by the inputs with the largest keys, down the longest way."""
    path, (offsets, readers, _) = [node], graph.consumers
    while graph.offsets[path[-1]] < graph.offsets[path[-1] + 1]:
        inputs = graph.inputs[graph.offsets[path[-1]] : graph.offsets[path[-1] + 1]]
        path.append(int(inputs[key[inputs].argmax()]))
    path.reverse()
    while offsets[path[-1]] < offsets[path[-1] + 1]:
        following = readers[offsets[path[-1]] : offsets[path[-1] + 1]]
        path.append(int(following[graph.height[following].argmax()]))
    types = graph.types[path]
    return tuple(types[~graph.alone[types]].tolist())


class _WordSearch:
    """Search for the shortest word that has all of some paths as subsequences.

    A state has a row with the position in each path. All states after equally many batches are one
    array, which costs some microseconds a state.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._kinds = sorted(set().union(*paths))
        number = {kind: place for place, kind in enumerate(self._kinds)}
        longest = max(map(len, paths))
        self._ends = np.array([len(path) for path in paths], np.int32)
        self._all = np.arange(len(paths))
        # by path and position: the next type; by type, too: how many are left
        self._next = np.full((len(paths), longest + 1), -1, np.int32)
        for place, path in enumerate(paths):
            self._next[place, : len(path)] = [number[kind] for kind in path]
        ahead = self._next == np.arange(len(self._kinds))[:, None, None]
        self._left = ahead[:, :, ::-1].cumsum(axis=2, dtype=np.int32)[:, :, ::-1]
        self._tables = self._pair_tables()

    def shortest(self, bound: int, effort: int) -> tuple[int, Optional[list[int]], int]:
        """Return the length of the shortest word that is not shorter than `bound`, the word, and
        the effort that is left. If that is used up, the word is None."""
        while True:
            states = np.zeros((1, len(self._ends)), np.int32)
            trail: list[tuple[np.ndarray, np.ndarray]] = []
            while len(states):
                done = np.flatnonzero((states == self._ends).all(axis=1))
                if len(done):
                    return bound, self._word(trail, int(done[0])), effort
                effort -= len(states) + _LAYER
                if effort < 0:
                    return bound, None, effort
                states, *step = self._following(states, bound - len(trail) - 1)
                trail.append((step[0], step[1]))
            bound += 1

    def _following(
        self, states: np.ndarray, batches: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the states after one more batch that may be finished in so many more batches, and
        for each the state before and the type that ran."""
        ready, left = self._next[self._all, states], self._left[:, self._all, states]
        most = left.max(axis=2, initial=0)
        needed = most.sum(axis=0)
        safe = np.full(len(states), -1)  # a type of which all that is left is ready
        runs = ready == np.arange(len(self._kinds))[:, None, None]
        for kind in range(len(self._kinds)):
            all_ready = (most[kind] == 1) & (left[kind] == runs[kind]).all(axis=1)
            safe[all_ready] = kind
        found, before, types = [], [], []
        for kind in range(len(self._kinds)):
            less = (left[kind] - runs[kind]).max(axis=1)
            may = runs[kind].any(axis=1) & ((safe < 0) | (safe == kind))
            some = np.flatnonzero(may & (needed - most[kind] + less <= batches))
            found.append(states[some] + runs[kind][some])
            before.append(some)
            types.append(np.full(len(some), kind))
        states = np.concatenate(found)
        rows = states.view(f'V{states.dtype.itemsize * len(self._ends)}')[:, 0]  # quick to compare
        places = np.unique(rows, return_index=True)[1]
        places = places[self._may_end(states[places], batches)]
        return states[places], np.concatenate(before)[places], np.concatenate(types)[places]

    def _may_end(self, states: np.ndarray, batches: int) -> np.ndarray:
        """Return the states whose pairs of paths need at most so many batches."""
        most = self._left[:, self._all, states].max(axis=2, initial=0)
        needed, kept = most.sum(axis=0), np.arange(len(states))
        for first, second, one, other, table in self._tables:
            some = states[kept]
            both = most[first, kept] + most[second, kept]
            pair = table[some[:, one], some[:, other]]
            kept = kept[needed[kept] - both + pair <= batches]
        return kept

    def _pair_tables(self) -> list[tuple[int, int, int, int, np.ndarray]]:
        """Return two types, two paths, and by positions in both the length of the shortest common
        supersequence of what is left of these types; those that raise the bound most come first."""
        most = self._left[:, :, 0].max(axis=1)
        clashing = [kind for kind in np.argsort(-most, kind='stable')[:_CLASHES] if most[kind] > 1]
        few = _CELLS // self._next.shape[1] ** 2
        ones, others = (each[:few] for each in np.triu_indices(len(self._ends), 1))
        found = []
        for first, second in combinations(clashing, 2):
            counted = (self._next == first) | (self._next == second)
            equal = self._next[ones][:, :, None] == self._next[others][:, None, :]
            equal &= counted[ones][:, :, None]
            common = np.zeros(equal.shape, np.int32)  # longest common subsequences
            for place in range(equal.shape[1] - 2, -1, -1):
                row = common[:, place + 1].copy()
                diagonal = np.where(equal[:, place, :-1], row[:, 1:] + 1, 0)
                np.maximum(row[:, :-1], diagonal, out=row[:, :-1])
                common[:, place] = np.maximum.accumulate(row[:, ::-1], axis=1)[:, ::-1]
            left = self._left[first] + self._left[second]
            lengths = left[ones][:, :, None] + left[others][:, None, :] - common
            for pair in np.flatnonzero(lengths[:, 0, 0] > most[first] + most[second]):
                gain = int(lengths[pair, 0, 0] - most[first] - most[second])
                found.append((gain, first, second, ones[pair], others[pair], lengths[pair]))
        found.sort(key=lambda entry: -entry[0])
        return [entry[1:] for entry in found[:_TABLES]]

    def _word(self, trail: Sequence[tuple[np.ndarray, np.ndarray]], state: int) -> list[int]:
        """Return the types that led to a state."""
        word = []
        for before, types in reversed(trail):
            word.append(self._kinds[types[state]])
            state = before[state]
        return word[::-1]
