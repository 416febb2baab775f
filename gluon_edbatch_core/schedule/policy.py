"""A learned policy as a value: it maps states to types, and is saved as JSON."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

import numpy as np

from ..bundle.manifest import read_json
from ..errors import PolicyError
from ..graph.graph import Graph
from ..short_repr import brief
from .encoding import State, StateEncoding, get_encoding
from .frontier import Rule, Run
from .rules import LeastDeep, LongestWay, LookAhead, LookUp
from .sufficient import SufficientCondition

FORMAT, VERSION = 'gluon_edbatch policy', 3
COMPARED = 'held out'  # the parameter with what was compared on held-out minibatches
_GONE = ('beam_width', 'min_visits')  # of configurations in files of version 0.1
_LARGEST = 1 << 26  # bytes; the tables of the shipped workloads take a few thousand
_FEW_TYPES = 64  # with more of them, to look ahead takes long
_SAME_NAMES = 256  # models, or parts of models, whose types are named and numbered once


def _look_ahead(run: Run) -> Rule:
    return (LookAhead if run.graph.num_types <= _FEW_TYPES else LongestWay)(run)


# In the order of their cost: of rules with equally many batches, the first one is chosen.
UNSEEN: dict[str, Callable[[Run], Rule]] = {
    'least deep': lambda run: LeastDeep(run.graph, run.frontier),
    'longest way': LongestWay,
    'look ahead': _look_ahead,
    'sufficient': SufficientCondition,
}
# Microseconds a node to choose by each, with all that a run does (64 lattices, 64 two-type trees).
COSTS = dict(zip([*UNSEEN, 'E_base', 'table'], [0.026, 0.029, 0.054, 0.106, 0.026, 0.080]))


@dataclass(frozen=True)
class QLearningConfig:
    """Rates and limits of `learn_policy`, which follows ED-Batch's Q-learning [1]_.

    All limits count work, not time, so a seed gives the same policy on any machine.

    Parameters
    ----------
    seed : int
        Seed of the random choices.
    learning_rate : float
        Share by which a value moves to the observed return.
    steps : int
        Number of decisions over which a return adds up rewards; later ones do not count.
    epsilon, epsilon_decay, epsilon_min : float
        Share of random decisions in the first episode, factor from one episode to the next, and
        least share.
    check_every : int
        Episodes between two checks of the table without random decisions; the best is kept.
    tolerance : float
        Learning ends when all graphs together need at most this many times the lower bound.
    effort : int
        Batches that may run while learning; 100 nodes count like one more.

    Raises
    ------
    ValueError
        If a value is not a number, or out of its range, which the message names: shares are between
        0 and 1, `tolerance` is at least 1.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851
    """

    seed: int = 0
    learning_rate: float = 0.4
    steps: int = 10
    epsilon: float = 0.5
    epsilon_decay: float = 0.9
    epsilon_min: float = 0.05
    check_every: int = 25
    tolerance: float = 1.0
    effort: int = 60_000

    def __post_init__(self) -> None:
        for name, low, high in (
            ('seed', 0, 2**32 - 1),
            ('learning_rate', 0, 1),
            ('steps', 1, 10**6),
            ('epsilon', 0, 1),
            ('epsilon_decay', 0, 1),
            ('epsilon_min', 0, 1),
            ('check_every', 1, 10**6),
            ('tolerance', 1, 100),
            ('effort', 0, 10**12),
        ):
            value = getattr(self, name)
            whole = type(self.__dataclass_fields__[name].default) is int
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise ValueError(
                    f'{name} must be a{" whole" if whole else ""} number, not {brief(value)}'
                )
            if not low <= value <= high:
                raise ValueError(f'{name} must be from {low} to {high}, not {brief(value)}')


class Reached(NamedTuple):
    """The batches of a policy on the graphs that it was learned from."""

    graphs: int
    nodes: int
    batches: int
    lower_bound: int
    sufficient: int


@dataclass(frozen=True, eq=False)
class Policy:
    """Map states to types to run: the state machine of ED-Batch [1]_, as a table.

    `learn_policy` makes a policy, `FSMScheduler` runs it, `save` and `load` keep it in a file.

    Parameters
    ----------
    encoding : StateEncoding
        What a state is.
    types : tuple of str
        The names of the types, all different; states and choices hold their positions.
    table : mapping of tuple of int to int
        Maps a state (see `StateEncoding`) to the type to run.
    config : QLearningConfig
        How the policy was learned.
    reached : Reached
        Results on the graphs that it was learned from: numbers of ``graphs`` and ``nodes``; for all
        together, its ``batches``, the ``lower_bound``, and batches of the ``sufficient`` condition.
    small : int, default 0
        Graphs of up to so many nodes use the sufficient condition, which reached the lower bound on
        all learned graphs of that size.
    unseen : {"sufficient", "least deep", "longest way", "look ahead"}, default "sufficient"
        The rule for states that are not in the table: the sufficient condition
        (`SufficientConditionScheduler`), the least mean depth (`AgendaScheduler`), the longest
        paths to the end (`PathEncoding`), or a search of a few batches. If the table is empty, the
        rule decides alone.
    parameters : dict of str to number, list or dict, optional
        What is learned besides the table, by name: finite numbers, or lists and dicts of them, at
        most 8 levels deep. ``"held out"`` has the batches of each rule, and of the table if one was
        learned, on held-out ``minibatches``; ``"held out us"`` has their microseconds, if they
        decided. Files keep names that a release ignores.

    Raises
    ------
    ValueError
        If `parameters` hold anything else.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851
    """

    encoding: StateEncoding
    types: tuple[str, ...]
    table: Mapping[State, int]
    config: QLearningConfig
    reached: Reached
    small: int = 0
    unseen: str = 'sufficient'
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.parameters, dict) or not _is_parameter(self.parameters):
            raise ValueError('parameters must be finite numbers by name, or lists or dicts of them')

    def __repr__(self) -> str:
        return (
            f'Policy({self.encoding.name}, {len(self.types)} types, {len(self.table)} states, '
            f'{self.reached.batches} batches where the lower bound is '
            f'{self.reached.lower_bound})'
        )

    @property
    def decides(self) -> str:
        """What chooses among ready types: ``"table"``, or the rule if the table is empty."""
        return 'table' if self.table else self.unseen

    @cached_property
    def verdict(self) -> str:
        """What decides, and the batches of all that was compared on held-out minibatches."""
        found = self.parameters.get(COMPARED)
        if not isinstance(found, dict) or not all(map(_whole, found.values())):
            return self.decides
        others = [
            f'{name} {count}'
            for count, name in sorted((count, name) for name, count in found.items())
            if name not in ('minibatches', self.decides)
        ]
        verdict = f'{self.decides} ({found.get(self.decides)} batches; {", ".join(others)})'
        us: Any = self.parameters.get(f'{COMPARED} us')
        is_whole = isinstance(us, dict) and {self.decides} <= set(us) <= set(found)
        if not is_whole or not all(isinstance(each, float) for each in us.values()):
            return verdict
        fewest = min(us, key=lambda name: (found[name], name != self.decides, us[name]))
        times = [f'{name} {us[name] / 1e3:.2f} ms' for name in {self.decides: 0, fewest: 0}]
        return f'{verdict}; estimated {", ".join(times)}'

    def number(self, graph: Graph) -> Graph:
        """Return the graph with its types numbered as in the policy; unknown ones follow.

        Parameters
        ----------
        graph : Graph
            A graph whose types have names.

        Returns
        -------
        Graph
        """
        return numbered(graph, self.types)

    def follow(self, run: Run) -> LookUp:
        """Return the rule that looks up the type to run, and uses `otherwise` in unknown states.

        Parameters
        ----------
        run : Run
            A run of a graph that `number` returned.
        """
        return LookUp(run, self.encoding, self.table, self.otherwise)

    def otherwise(self, run: Run) -> Rule:
        """Return the rule that decides in unknown states, from a run's present position on.

        Parameters
        ----------
        run : Run
            A run that is not finished.

        Returns
        -------
        Rule
        """
        return UNSEEN[self.unseen](run)

    def content(self) -> dict[str, Any]:
        """Return the content of the policy's file, as dicts, lists, strings and numbers."""
        return {
            'format': FORMAT,
            'version': VERSION,
            'encoding': self.encoding.name,
            'types': list(self.types),
            'config': asdict(self.config),
            'reached': self.reached._asdict(),
            'small': self.small,
            'unseen': self.unseen,
            'parameters': self.parameters,
            'table': [[list(state), kind] for state, kind in sorted(self.table.items())],
        }

    def save(self, path: Union[str, Path]) -> None:
        """Write the policy as JSON; an older file is replaced when all is written.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        path = Path(path)
        content = self.content()
        rows = ',\n'.join(f'  {json.dumps(row)}' for row in content.pop('table'))
        head = json.dumps(content, indent=1, ensure_ascii=False)
        text = f'{head[:-2]},\n "table": [\n{rows}\n ]\n}}\n'
        temporary = path.with_name(f'{path.name}.{os.getpid()}.part')
        try:
            temporary.write_text(text, encoding='utf-8')
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: Union[str, Path], encoding: Optional[StateEncoding] = None) -> 'Policy':
        """Read a policy that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        encoding : StateEncoding or str, optional
            The encoding, if it is your own; it must have the name in the file.

        Returns
        -------
        Policy

        Raises
        ------
        PolicyError
            If the file is not a complete and consistent policy of version 2 or 3, or was learned
            with another encoding.
        OSError
            If the file cannot be read.
        """
        content = read_json(Path(path), 'policy', _LARGEST, PolicyError)
        try:
            return policy_of(content, encoding)
        except ValueError as error:
            raise PolicyError(f'{path}: {error}') from None


def names_of(graph: Graph) -> tuple[str, ...]:
    """Return distinct names of a graph's types; equal ones get a number."""
    return _told_apart(
        tuple(graph.type_names) or tuple(f'type {kind}' for kind in range(graph.num_types))
    )


@lru_cache(maxsize=_SAME_NAMES)
def _told_apart(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) == len(names):
        return names
    found, seen = [], Counter[str]()
    for name in names:
        seen[name] += 1
        found.append(f'{name} #{seen[name]}' if seen[name] > 1 else name)
    return tuple(found)


def numbered(graph: Graph, types: tuple[str, ...]) -> Graph:
    """Return the graph with its types numbered by position in `types`; unknown ones follow."""
    mapping, count = _mapping(types, names_of(graph))
    if mapping is None:
        return graph
    alone = np.zeros(count, bool)
    alone[mapping] = graph.alone
    overheads = np.zeros(count if len(graph.overheads) else 0)
    overheads[mapping[: len(overheads)]] = graph.overheads
    types_of = mapping.take(graph.types)
    return Graph(types_of, graph.offsets, graph.inputs, count, alone, (), overheads.tolist())


@lru_cache(maxsize=_SAME_NAMES)
def _mapping(types: tuple[str, ...], names: tuple[str, ...]) -> tuple[Optional[np.ndarray], int]:
    """Return the new number of each name, None if none changes, and how many numbers there are."""
    known = {name: number for number, name in enumerate(types)}
    for name in names:
        known.setdefault(name, len(known))
    mapping = np.array([known[name] for name in names], np.int32)
    is_same = len(known) == len(names) and (mapping == np.arange(len(names))).all()
    return None if is_same else mapping, len(known)


def policy_of(content: Any, encoding: Optional[StateEncoding] = None) -> Policy:
    """Return a policy made of its JSON content; raise a ValueError if the content is wrong."""
    if not isinstance(content, dict) or content.get('format') != FORMAT:
        raise ValueError(f'this is no policy: it has no "format": "{FORMAT}"')
    if content.get('version') == 2:  # whose types have the same names
        content = {**content, 'parameters': {}}
    elif content.get('version') != VERSION:
        raise ValueError(
            f'this is a policy of version {brief(content.get("version"))}, but only versions 2 and '
            f'{VERSION} can be read: install the release that wrote it, or learn it anew with '
            'gluon_edbatch.learn_policy(graphs).save(path)'
        )
    types = content.get('types')
    if (
        not isinstance(types, list)
        or not all(map(_is_text, types))
        or len(set(types)) != len(types)
    ):
        raise ValueError('types must be a list of different names')
    small: Any = content.get('small')
    unseen: Any = content.get('unseen')
    if not _whole(small) or small < 0:
        raise ValueError(f'small must be a whole number of nodes, not {brief(small)}')
    if not isinstance(unseen, str) or unseen not in UNSEEN:
        raise ValueError(f'unseen must be one of {", ".join(UNSEEN)}, not {brief(unseen)}')
    return Policy(
        _encoding(content.get('encoding'), encoding),
        tuple(types),
        _table(content.get('table'), len(types)),
        _config(content.get('config')),
        _reached(content.get('reached')),
        small,
        unseen,
        content.get('parameters'),
    )


def _encoding(name: Any, given: Optional[StateEncoding]) -> StateEncoding:
    if not isinstance(name, str):
        raise ValueError(f'encoding must be a name, not {brief(name)}')
    if given is None:
        try:
            return get_encoding(name)
        except ValueError as error:
            raise ValueError(
                f'{error}; if it is one of your own, give it to Policy.load(..., encoding=)'
            ) from None
    found = get_encoding(given)
    if found.name != name:
        raise ValueError(
            f'this policy was learned with the encoding {name!r}, not with {found.name!r}'
        )
    return found


def _table(rows: Any, num_types: int) -> dict[State, int]:
    if not isinstance(rows, list):
        raise ValueError('table must be a list of states and choices')
    table: dict[State, int] = {}
    for place, row in enumerate(rows):
        where = f'entry {place} of the table'
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], list):
            raise ValueError(f'{where} must be [[numbers of a state], type]')
        state, kind = row
        if not _whole(kind) or not 0 <= kind < num_types:
            raise ValueError(
                f'{where} chooses the type {brief(kind)}, but types go from 0 to {num_types - 1}'
            )
        if not all(_whole(number) and abs(number) < 1 << 62 for number in state):
            raise ValueError(f'{where} has a state that is no list of whole numbers')
        if tuple(state) in table:
            raise ValueError(f'{where} has the same state as an earlier one')
        table[tuple(state)] = kind
    return table


def _config(values: Any) -> QLearningConfig:
    names = {entry.name for entry in fields(QLearningConfig)}
    if not isinstance(values, dict) or set(values) - set(_GONE) != names:
        raise ValueError(f'config must have {", ".join(sorted(names))}')
    return QLearningConfig(**{name: values[name] for name in names})


def _reached(values: Any) -> Reached:
    if (
        not isinstance(values, dict)
        or set(values) != set(Reached._fields)
        or not all(_whole(value) and value >= 0 for value in values.values())
    ):
        raise ValueError(f'reached must have whole numbers {", ".join(Reached._fields)}')
    return Reached(**values)


def _is_text(value: Any) -> bool:
    """Return whether a value is a string without half a surrogate pair, which cannot be written."""
    return isinstance(value, str) and value.encode(errors='replace').decode() == value


def _is_parameter(value: Any, levels: int = 8) -> bool:
    """Return whether a value is a finite number, or a list or dict of such values."""
    if isinstance(value, dict):
        return all(map(_is_text, value)) and _is_parameter(list(value.values()), levels)
    if isinstance(value, list):
        return levels > 0 and all(_is_parameter(each, levels - 1) for each in value)
    return _whole(value) or (isinstance(value, float) and isfinite(value))


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
