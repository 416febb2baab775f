"""The FSM scheduler: a policy learned on the first minibatches tells which type to run."""

import threading
import time
from dataclasses import replace
from typing import Optional

from ..graph.graph import Graph
from ..short_repr import brief
from .bound import lower_bound
from .cache import ScheduleCache
from .frontier import Run
from .learning import learn_policy
from .policy import Policy, QLearningConfig, names_of
from .protocol import Schedule
from .sufficient import SufficientConditionScheduler

_LESSONS = 4  # minibatches of a model that are learned from
_EXTENSIONS = 8  # times that a model may turn out to have more types, and learns again
_MODELS = 64  # models that are remembered


class FSMScheduler:
    """Run the types that a policy chooses, learned on the first minibatches of each model.

    A policy chooses which ready type runs next. It is a finite state machine like ED-Batch's [1]_,
    or a fixed rule where that takes less time (see `learn_policy`). Without a policy the
    sufficient condition decides, as in `SufficientConditionScheduler`.

    Each model, identified by the names of its types, has one policy for minibatches of any size.
    Learning ends when the policy reaches the lower bound on another minibatch without a new state,
    or after four minibatches. New types in a model restart it, up to seven times. Minibatches of
    more than ``10 * config.effort`` calls are not learned from. Several threads may share a
    scheduler; while one learns, others use the present policy.

    Parameters
    ----------
    policy : Policy, optional
        Use this policy for all models, and learn nothing.
    learn : bool, default True
        Whether to learn where there is no policy.
    config : QLearningConfig, default QLearningConfig(effort=10000)
        How to learn, each time; the default takes about a second or two at most.
    cache : int, default 16
        Number of schedules to keep for minibatches that recur; none if 0.

    Attributes
    ----------
    learn_s : float
        Seconds that learning took so far.
    unseen_states : int
        Number of choices in states without a learned type.

    Raises
    ------
    ValueError
        If `cache` is less than 0.
    TypeError
        If `policy` is not a Policy, such as the name of a file.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851

    Examples
    --------
    >>> scheduler = edb.FSMScheduler()
    >>> with edb.batching(scheduler) as scope:
    ...     values = [net(sample) for sample in samples]
    >>> arrays = edb.forward(values)
    """

    name = 'fsm'

    def __init__(
        self,
        policy: Optional[Policy] = None,
        learn: bool = True,
        config: QLearningConfig = QLearningConfig(effort=10_000),
        cache: int = 16,
    ) -> None:
        if policy is not None and not isinstance(policy, Policy):
            raise TypeError(
                f'policy is a Policy or None, not {brief(policy)}; Policy.load reads one of a file'
            )
        self.policy = policy
        self.learn = learn and policy is None
        self.config = config
        self.learn_s, self.unseen_states = 0.0, 0
        self._cache = ScheduleCache(cache)
        self._models: list[_KnownModel] = []
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        what = repr(self.policy) if self.policy is not None else f'learn={self.learn}'
        return f'FSMScheduler({what})'

    @property
    def policies(self) -> list[Policy]:
        """The policies learned so far, one for each model."""
        return [model.policy for model in self._models if model.policy is not None]

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches of the whole ready set of a type, or of a node that must run alone."""
        key, schedule = self._cache.get(graph)
        if schedule is not None:
            return schedule
        policy, learn_s = self.policy, 0.0
        if policy is None:
            kinds = frozenset(names_of(graph))
            if self.learn and len(graph) <= 10 * self.config.effort:
                learn_s = self._study(graph, kinds)
                self.learn_s += learn_s
            model = self._known(kinds)
            policy = model.policy if model is not None else None
        schedule = run_policy(graph, policy)
        self.unseen_states += schedule.unseen_states
        self._cache.put(key, schedule)
        return replace(schedule, learn_s=learn_s) if learn_s else schedule

    def _known(self, kinds: frozenset) -> Optional['_KnownModel']:
        """Return the model with all of these types, or else one that has some of them."""
        models = self._models
        for model in models:
            if kinds <= model.kinds:
                return model
        return next((model for model in models if kinds & model.kinds), None)

    def _study(self, graph: Graph, kinds: frozenset) -> float:
        """Learn from a graph if its model needs that; return the seconds that it took."""
        model = self._known(kinds)
        if model is not None and model.done and kinds <= model.kinds:
            return 0.0
        if not self._lock.acquire(blocking=False):  # another thread learns
            return 0.0
        try:
            started = time.perf_counter()
            model = self._known(kinds)
            if model is None:
                model = _KnownModel()
                self._models = self._models[1 - _MODELS :] + [model]
            if not kinds <= model.kinds:
                model.extend(kinds)
            if model.done:
                return 0.0
            model.study(graph, self.config)
            self._cache.clear()
            return time.perf_counter() - started
        finally:
            self._lock.release()


class _KnownModel:
    """What a scheduler knows of a model."""

    def __init__(self) -> None:
        self.kinds: frozenset = frozenset()
        self.policy: Optional[Policy] = None
        self.done = False
        self._studied = self._extended = 0
        self._lessons: list[Graph] = []

    def study(self, graph: Graph, config: QLearningConfig) -> None:
        """Learn from one more minibatch, unless the policy is good enough."""
        self._studied += 1
        self.done = self._studied >= _LESSONS
        if self.policy is not None and self.kinds <= set(self.policy.types):
            schedule = run_policy(graph, self.policy)
            if len(schedule) == lower_bound(graph):
                self.done |= not schedule.unseen_states
                return
        self._lessons.append(graph)
        self.policy = learn_policy(self._lessons, config=config)
        if self.done:
            self._lessons = []

    def extend(self, kinds: frozenset) -> None:
        """Add types that the model did not have, and learn again."""
        self.kinds |= kinds
        self._extended += 1
        if self._extended <= _EXTENSIONS:  # else a model that has new types in each minibatch
            self._studied, self.done = 0, False


def run_policy(graph: Graph, policy: Optional[Policy]) -> Schedule:
    """Return the schedule of a policy; for None, that of `SufficientConditionScheduler`."""
    if policy is None or len(graph) <= policy.small:
        return SufficientConditionScheduler().schedule(graph)
    run, unseen = Run(policy.number(graph)), 0
    if not run.settle():  # many a graph has nothing to decide
        return run.schedule()
    if policy.table:
        look_up = policy.follow(run)
        run.finish(look_up)
        unseen = look_up.unseen
    else:
        run.finish(policy.otherwise(run))
    return replace(run.schedule(), unseen_states=unseen, decided_by=policy.verdict)
