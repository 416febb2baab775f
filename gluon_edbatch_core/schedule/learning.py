"""Learn a policy: a table, or the fixed rule that takes less.

A table imitates the schedules of the rules, and is improved by Q-learning. The sufficient condition
decides in unknown states.

README.md lists differences from ED-Batch (Chen et al., 2023), and their effect.
"""

import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Optional, Union

import numpy as np

from ..graph.graph import Graph
from .bound import CostToGo, lower_bound
from .encoding import State, StateEncoding, get_encoding
from .fixed_rules import DepthScheduler
from .frontier import Frontier, Run
from .policy import COMPARED, COSTS, UNSEEN, Policy, QLearningConfig, Reached, names_of, numbered
from .rules import LookUp
from .sufficient import SufficientCondition

# Tried in this order if no encoding is named: those that cost least to look at come first.
ENCODINGS = ('E_base', 'E_sort', 'E_path')


def learn_policy(
    graphs: Sequence[Graph],
    encoding: Union[str, StateEncoding, None] = None,
    config: QLearningConfig = QLearningConfig(),
) -> Policy:
    """Learn which type to run in which state.

    Parameters
    ----------
    graphs : sequence of Graph
        Minibatches as `gluon_edbatch` records them; types are told apart by their names.
    encoding : str or StateEncoding, optional
        What a state is, for a policy whose table decides, as in ED-Batch. By default tables of
        ``"E_base"``, ``"E_sort"`` and ``"E_path"`` are tried until one reaches the lower bound. A
        fixed rule decides if it takes less on held-out graphs: less estimated time if all graphs
        have ``overheads``, as those of evaluations have, or else fewer batches.
    config : QLearningConfig
        Limits and rates.

    Returns
    -------
    Policy
        Equal graphs and configurations give the same policy, bit for bit.

    Raises
    ------
    ValueError
        If there are no graphs, or no encoding has this name.

    Notes
    -----
    The return of a decision is ED-Batch's [1]_: the cost of the next few batches, where batches
    that lower the lower bound cost nothing. Imitation of fixed rules' schedules comes first.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851
    """
    if not graphs:
        raise ValueError('there must be a graph to learn from')
    types = tuple(sorted({name for graph in graphs for name in names_of(graph)}))
    effort = _Effort(config.effort)
    # By time if the graphs tell what batches take, else by the number of batches.
    is_timed = all(len(graph.overheads) for graph in graphs)
    # Every second graph only judges what was learned from the others.
    lessons = [
        _Lesson(numbered(graph, types), effort, not place % 2, is_timed)
        for place, graph in enumerate(graphs)
    ]
    judges = [lesson for lesson in lessons if not lesson.taught] or lessons
    rule = min(UNSEEN, key=lambda name: sum(lesson.cost[name] for lesson in lessons))
    costs = {name: sum(lesson.cost[name] for lesson in judges) for name in UNSEEN}
    compared = {name: _taken(judges, name) for name in judges[0].taken}
    target = config.tolerance * sum(lesson.bound for lesson in judges)
    learners = []
    for each in [encoding] if encoding else ENCODINGS:
        learners.append(_Learner(get_encoding(each), lessons, judges, config, effort))
        learners[-1].imitate()
        if learners[-1].batches <= target:
            break
    best = min(learners, key=lambda learner: learner.batches)
    best.q_learning(target)
    compared['table'] = best.batches
    # Rules at the bound may fail on other graphs, where no table did; above it, rules hold better.
    is_better = len(lessons) > 1 and best.batches < compared[rule]
    if is_timed:  # a batch of the table takes as long as the rule's do on average
        nodes = sum(len(lesson.graph) for lesson in judges)
        took = costs[rule] - COSTS[rule] * nodes
        choosing = COSTS.get(best.encoding.name, COSTS['table']) * nodes
        costs['table'] = took * best.batches / max(compared[rule], 1) + choosing
        is_better = is_better and costs['table'] < costs[rule]
    if encoding or is_better or best.batches <= target:
        rule, table, batches = 'sufficient', best.table, best.count(best.table, lessons)
    else:
        table, batches = {}, _taken(lessons, rule)
    reached = Reached(
        len(graphs),
        sum(map(len, graphs)),
        batches,
        sum(lesson.bound for lesson in lessons),
        _taken(lessons, 'sufficient'),
    )
    parameters: dict[str, Any] = {COMPARED: {'minibatches': len(judges), **compared}}
    if is_timed:
        parameters[f'{COMPARED} us'] = costs
    return Policy(best.encoding, types, table, config, reached, 0, rule, parameters)


def _taken(lessons: Sequence['_Lesson'], name: str) -> int:
    """Return the batches of a fixed rule on graphs."""
    return sum(lesson.taken[name] for lesson in lessons)


class _Effort:
    """The batches that learning may still run."""

    def __init__(self, effort: int) -> None:
        self.left = float(effort)

    def spend(self, run: Run) -> None:
        """Count a run; 100 nodes cost about as much as one more batch."""
        self.left -= len(run) + len(run.graph) / 100


class _Lesson:
    """A graph to learn from, and the schedule of each rule for it."""

    def __init__(self, graph: Graph, effort: _Effort, taught: bool, is_timed: bool) -> None:
        self.graph, self.taught, self.bound = graph, taught, lower_bound(graph)
        runs = []
        for rule in UNSEEN.values():
            runs.append(Run(graph))
            runs[-1].finish(rule(runs[-1]))
            effort.spend(runs[-1])
        self.taken = dict(zip(UNSEEN, map(len, runs)))
        self.taken['depth'] = len(DepthScheduler().schedule(graph))
        # Types in the order in which they ran: the best run first, then that of each rule.
        runs.insert(0, min(runs, key=len))
        self.choices = [[int(graph.types[nodes[0]]) for nodes in run.batches] for run in runs]
        # Microseconds, but for those of rows, which are equal for all rules; or batches.
        self.cost: dict[str, float] = dict(self.taken)
        for name, choices in zip(UNSEEN, self.choices[1:] if is_timed else []):
            spent = np.asarray(graph.overheads)[choices].sum()
            self.cost[name] = float(spent) + COSTS[name] * len(graph)


class _Learner:
    """Learn a table for one encoding: keep the best, and the batches of the judges with it."""

    def __init__(
        self,
        encoding: StateEncoding,
        lessons: Sequence[_Lesson],
        judges: Sequence[_Lesson],
        config: QLearningConfig,
        effort: _Effort,
    ) -> None:
        self.encoding = encoding
        self._judges, self._config, self._effort = judges, config, effort
        self._taught = [lesson for lesson in lessons if lesson.taught]
        self.table: dict[State, int] = {}
        self.batches = sys.maxsize

    def imitate(self) -> None:
        """Choose, in each state, the type that the best schedules, or those of a rule, ran most."""
        for schedules in zip(*[lesson.choices for lesson in self._taught]):
            votes: dict[State, dict[int, float]] = {}
            for lesson, choices in zip(self._taught, schedules):
                self._count_votes(lesson, choices, votes)
            self._keep_better(votes)
            if self.batches == sum(lesson.bound for lesson in self._judges):
                break

    def _count_votes(
        self, lesson: _Lesson, choices: Sequence[int], votes: dict[State, dict[int, float]]
    ) -> None:
        run = Run(lesson.graph)
        state_of = self.encoding.follow(run)
        while run.settle():
            kind = choices[len(run)]
            for state in self._levels(state_of()):
                some = votes.setdefault(state, {})
                some[kind] = some.get(kind, 0) + 1
            run.advance(kind)
        self._effort.spend(run)

    def _levels(self, state: Optional[State]) -> Iterator[State]:
        """Yield a state, and then the coarser ones."""
        while state is not None:
            yield state
            state = self.encoding.coarser(state)

    def count(self, table: dict[State, int], lessons: Sequence[_Lesson]) -> int:
        """Return the batches of graphs with a table."""
        batches = 0
        for lesson in lessons:
            run = Run(lesson.graph)
            run.finish(LookUp(run, self.encoding, table, SufficientCondition))
            self._effort.spend(run)
            batches += len(run)
        return batches

    def _keep_better(self, values: dict[State, dict[int, float]]) -> None:
        """Keep the table of the best types by value if the judges need fewer batches with it."""
        table = {state: _best(some) for state, some in values.items()}
        batches = self.count(table, self._judges)
        if batches < self.batches:
            self.table, self.batches = table, batches

    def q_learning(self, target: float) -> None:
        """Look for a better table until the target is reached or half of the effort is spent."""
        config, rng = self._config, Random(self._config.seed)
        until, epsilon, episode = self._effort.left / 2, config.epsilon, 0
        values = {state: {kind: 0.0} for state, kind in self.table.items()}
        togo: dict[_Lesson, CostToGo] = {}
        while self._effort.left > until and self.batches > target:
            lesson = self._taught[episode % len(self._taught)]
            if lesson not in togo:
                togo[lesson] = CostToGo(lesson.graph)
            run = Run(lesson.graph)
            decisions, wasted = self._episode(run, togo[lesson].copy(), values, epsilon, rng)
            for place, (state, kind) in enumerate(decisions):
                end = min(place + config.steps, len(decisions))
                returned = wasted[place] - wasted[end]
                for level in self._levels(state):
                    some = values.setdefault(level, {})
                    old = some.get(kind, -1.0)
                    some[kind] = old + config.learning_rate * (returned - old)
            epsilon = max(config.epsilon_min, epsilon * config.epsilon_decay)
            episode += 1
            if episode % config.check_every == 0:
                self._keep_better(values)

    def _episode(
        self,
        run: Run,
        togo: CostToGo,
        values: dict[State, dict[int, float]],
        epsilon: float,
        rng: Random,
    ) -> tuple[list[tuple[State, int]], list[int]]:
        """Run an episode; return decisions, and the excess over the bound at each and the end."""
        state_of, seen = self.encoding.follow(run), 0
        decisions, wasted = [], []
        while run.settle():
            togo.run(run.frontier.since(seen))
            seen = len(run)
            wasted.append(seen + togo.bound)
            state, kind = state_of(), None
            if rng.random() >= epsilon:
                kind = self._greedy(state, values, run.frontier)
            if kind is None:
                kind = rng.choice(run.frontier.kinds())
            decisions.append((state, kind))
            run.advance(kind)
        wasted.append(len(run))
        self._effort.spend(run)
        return decisions, wasted

    def _greedy(
        self, state: State, values: dict[State, dict[int, float]], frontier: Frontier
    ) -> Optional[int]:
        """Return the best ready type known in a state, or in a coarser one; else None."""
        for level in self._levels(state):
            known = values.get(level, {})
            some = {kind: value for kind, value in known.items() if frontier.is_ready(kind)}
            if some:
                return _best(some)
        return None


def _best(values: dict[int, float]) -> int:
    """Return the type with the highest value; of equal ones, that with the lowest number."""
    return max(values, key=lambda kind: (values[kind], -kind))
