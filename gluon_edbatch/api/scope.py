"""``with batching():`` the scope in which calls are recorded."""

import time
from collections import Counter
from typing import Any, List, Optional, Tuple, Union

import mxnet as mx

from ..execute.evaluate import Evaluator
from ..graph.graph import Graph
from ..record import hooks
from ..record.recording import Recording
from ..report.counters import Report, make_report
from ..report.explain import Explanation, explain
from ..schedule import Schedule, Scheduler, get_scheduler
from ..subgraph.options import CompileOptions, current_options

DEFAULT_SCHEDULER = 'fsm'


class batching:
    r"""Record calls of HybridBlocks and operators on their results, and run them in batches.

    Inside the scope a call gives `LazyArray`\ s. Leaving the scope ends recording and runs
    nothing; values are computed when somebody looks at one, or by `gluon_edbatch.forward`,
    `stack`, `concat` and `add_n`. If an exception leaves the scope, its values are void.

    A thread or asyncio task records into the innermost scope that it, or for a task its creator,
    has entered and that is still open; scopes may end in any order.

    Parameters
    ----------
    scheduler : str or Scheduler, default 'fsm'
        Which calls run together: ``'fsm'`` (learns on the first minibatches of a model),
        ``'sufficient'``, ``'beam'``, ``'depth'``, ``'agenda'``, ``'agenda-remaining'``,
        ``'unbatched'``, or an object with a ``schedule`` method.
    ctx : mxnet.Context, optional
        Where numbers and NumPy arrays go. By default the context of the first parameter or
        array that is met.
    compile_options : CompileOptions, optional
        Which optimisations are on. By default all, or what `gluon_edbatch.compile_options` says
        around it.
    timing : bool, default False
        Whether to measure how long the calls of each line take to evaluate, which `explain` tells.
        Evaluations take longer then, as Python waits for MXNet's engine.

    Examples
    --------
    >>> with autograd.record():
    ...     with edb.batching() as scope:
    ...         losses = [loss_fn(net(sample), label) for sample, label in minibatch]
    ...     loss = edb.stack(losses).mean()
    >>> loss.backward()
    >>> print(scope.report())
    """

    _open = False  # also if a wrong argument stops __init__

    def __init__(
        self,
        scheduler: Union[str, Scheduler] = DEFAULT_SCHEDULER,
        ctx: Optional[mx.Context] = None,
        compile_options: Optional[CompileOptions] = None,
        timing: bool = False,
    ):
        self.scheduler = get_scheduler(scheduler)
        self._ctx = ctx
        self._options = current_options() if compile_options is None else compile_options
        self._timing = timing
        self._recording: Optional[Recording] = None
        self._started = self._record_s = 0.0

    def __enter__(self) -> 'batching':
        if self._recording is not None:
            raise RuntimeError('a batching scope records once; make a new one')
        evaluator = Evaluator(self.scheduler, self._timing)
        self._recording = recording = Recording(evaluator, self._ctx, self._options)
        recording.outer = hooks.current_recording()
        self._open = True
        hooks.install(self)
        try:
            hooks.record_into(recording)
            self._started = time.perf_counter()
            return self
        except BaseException:  # an interrupt: __exit__ will not be called
            self._leave()
            raise

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        recording = self._recording
        if not self._open or recording is None:
            return
        try:
            recording.close(error)  # while Python's garbage collector still waits
        finally:
            try:
                self._leave()
            except BaseException:
                self._leave()
                raise
            self._open = False
            self._record_s = time.perf_counter() - self._started - recording.evaluator.inside_s

    def __del__(self) -> None:
        if self._open:  # an interrupt came just as Python was about to call __exit__
            self._leave()

    def _leave(self) -> None:
        """Leave nothing behind; may be called again, as an interrupt can come in between."""
        hooks.end_recording(self._recording)
        hooks.remove(self)

    def report(self) -> Report:
        """Counters of all evaluations so far; ``print(scope.report())`` shows them, types that
        differ in shapes and constants only on one line."""
        recording = self._recording
        evaluator = recording.evaluator if recording else Evaluator(self.scheduler)
        return make_report(
            self.scheduler.name,
            evaluator.counts,
            self._record_s,
            evaluator.forced,
            recording.forms if recording else (),
        )

    def explain(self) -> Explanation:
        """Why calls were batched as they were, place by place in the user's code, and what would
        help; ``print(scope.explain())`` shows it. Nothing is evaluated."""
        return explain(self._recording, self.scheduler)

    def graph(self) -> Graph:
        """What is recorded and not computed yet, as a scheduler will see it: something to learn
        a policy from without running anything (see `gluon_edbatch.learn_policy`)."""
        if self._recording is None:
            raise RuntimeError('a batching scope that was not entered has no graph')
        return self._recording.evaluator.graph(self._recording)

    def schedules(self) -> List[Tuple[Graph, Schedule]]:
        """The graph and the schedule of each evaluation so far."""
        counts = self._recording.evaluator.counts if self._recording else []
        return [(count.graph, count.schedule) for count in counts]

    def __str__(self) -> str:
        """The recorded graph by type."""
        if self._recording is None:
            return 'batching scope, not entered'
        forms = self._recording.forms
        counts = Counter(
            forms[form].node_type for form in self._recording.node_forms.since(0).tolist()
        )
        lines = [
            f'batching scope ({self.scheduler.name}): '
            f'{len(self._recording.node_forms)} calls of {len(counts)} types'
        ]
        lines += [f'  {number:7d} x {kind!r}' for kind, number in counts.most_common()]
        return '\n'.join(lines)

    __repr__ = __str__
