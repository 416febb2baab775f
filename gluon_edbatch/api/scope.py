"""``with batching():``, the scope in which calls are recorded."""

import math
import time
from collections import Counter
from typing import Any, Optional, Union

import mxnet as mx
import numpy as np

from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import Schedule, Scheduler, get_scheduler
from gluon_edbatch_core.short_repr import brief

from ..execute.evaluate import Evaluator
from ..record import hooks
from ..record.recording import Recording
from ..report.counters import Report, make_report
from ..report.explain import Explanation, explain
from ..subgraph.options import CompileOptions, current_options

DEFAULT_SCHEDULER = 'fsm'


def check_ctx(ctx: Any) -> None:
    """Raise a TypeError if `ctx` is neither a context nor None."""
    if ctx is not None and not isinstance(ctx, mx.Context):
        raise TypeError(f'ctx is an mxnet.Context or None, not {brief(ctx)}')


class batching:
    """Record calls of HybridBlocks and operators on their results, and run them in batches.

    Inside the scope a call returns a `LazyArray`. Leaving the scope ends recording and runs
    nothing. Values are computed when one is read, or by `gluon_edbatch.forward`, `stack`, `concat`
    and `add_n`. If an exception leaves the scope, reading one of its values raises a
    `StaleValueError`.

    A thread records into the innermost open scope that it has entered; an asyncio task also into
    its creator's. Scopes may end in any order.

    Parameters
    ----------
    scheduler : str or Scheduler, default 'fsm'
        Which calls run together: ``'fsm'`` (a policy for each model),
        ``'sufficient'``, ``'beam'``, ``'depth'``, ``'agenda'``, ``'agenda-remaining'``,
        ``'unbatched'``, or an object with a ``schedule`` method.
    ctx : mxnet.Context, optional
        Device of numbers and NumPy arrays. The default is the context of the first parameter or
        array that is recorded.
    compile_options : CompileOptions, optional
        Which optimisations are on. The default is all, or what an outer
        `gluon_edbatch.compile_options` says.
    timing : bool, default False
        Whether to measure the evaluation time of each line's calls, for `explain`. If MXNet's
        profiler runs, it shows them, too, in the domain ``gluon_edbatch``. Evaluations take longer
        then, as Python waits for MXNet's engine.

    Raises
    ------
    ValueError
        If no scheduler has this name.
    TypeError
        If `scheduler`, `ctx` or `compile_options` has another type.
    RuntimeError
        If a scope is entered twice: make a new one for each minibatch.

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
    _records_in: type[Recording] = Recording
    _keeps_counts = True

    def __init__(
        self,
        scheduler: Union[str, Scheduler] = DEFAULT_SCHEDULER,
        ctx: Optional[mx.Context] = None,
        compile_options: Optional[CompileOptions] = None,
        timing: bool = False,
    ):
        self.scheduler = get_scheduler(scheduler)
        check_ctx(ctx)
        if compile_options is not None and not isinstance(compile_options, CompileOptions):
            raise TypeError(
                f'compile_options are edb.CompileOptions(...) or None, not {brief(compile_options)}'
            )
        self._ctx = ctx
        self._options = current_options() if compile_options is None else compile_options
        self._timing = timing
        self._recording: Optional[Recording] = None
        self._started = self._record_s = 0.0

    def __enter__(self) -> 'batching':
        if self._recording is not None:
            raise RuntimeError('a batching scope records once; make a new one')
        outer = hooks.current_recording()
        evaluator = Evaluator(self.scheduler, self._timing, self._keeps_counts)
        self._recording = recording = self._records_in(evaluator, self._ctx, self._options)
        recording.outer = outer
        self._open = True
        hooks.install(self)
        try:
            hooks.enter(recording)
            self._started = time.perf_counter()
            return self
        except BaseException:  # an interrupt: __exit__ will not be called
            self._leave()
            raise

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if not self._open:
            return
        recording = self._recording
        try:
            if recording is not None:
                recording.close(error)  # while Python's garbage collector still waits
        finally:
            try:
                self._leave()
            except BaseException:
                self._leave()
                raise
            self._open = False
            self._record_s = time.perf_counter() - self._started
            if recording is not None:
                self._record_s -= recording.evaluator.inside_s

    def __del__(self) -> None:
        if self._open:  # an interrupt came just as Python was about to call __exit__
            self._leave()

    def _leave(self) -> None:
        """Remove the recording and the hooks; may be called again after an interrupt."""
        if self._recording is not None:
            hooks.leave(self._recording)
        hooks.remove(self)

    def report(self) -> Report:
        """Return the counters of all evaluations so far, times in milliseconds.
        ``print(scope.report())`` has one line for batch signatures that differ only in shapes
        and constants."""
        return make_report(self.scheduler.name, self._recording, self._record_s)

    def explain(self) -> Explanation:
        """Explain, line by line of the user's code, why calls were batched as they were, and what
        would help. ``print(scope.explain())`` shows it. Nothing is evaluated."""
        return explain(self._recording, self.scheduler)

    def graph(self) -> Graph:
        """Return the calls that are recorded and not computed yet, as a scheduler will see them.
        `gluon_edbatch.learn_policy` learns a policy from such graphs without running anything.

        Raises
        ------
        RuntimeError
            If the scope was not entered.
        """
        if self._recording is None:
            raise RuntimeError('a batching scope that was not entered has no graph')
        return self._recording.evaluator.graph(self._recording)

    def schedules(self) -> list[tuple[Graph, Schedule]]:
        """Return the graph and the schedule of each evaluation so far."""
        counts = self._recording.evaluator.counts if self._recording else []
        return [(count.graph, count.schedule) for count in counts]

    def __str__(self) -> str:
        """Return the recorded graph by type, as text."""
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


class lasting(batching):
    """Record as `batching` does, in a scope that samples enter and leave. The scope keeps no
    figures, and keeps results only while somebody can read them."""

    _keeps_counts = False
    _seen_given = _bytes_given = 0  # arrays

    @property
    def calls_recorded(self) -> int:
        """Return how many calls the scope has recorded so far."""
        return 0 if self._recording is None else len(self._recording.node_forms)

    @property
    def evaluations(self) -> int:
        """Return how many evaluations there were so far."""
        return 0 if self._recording is None else len(self._recording.ran)

    @property
    def calls_kept(self) -> int:
        """Return how many recorded calls still have results, or will have them."""
        recorded = self._recording
        return 0 if recorded is None else self.calls_recorded - recorded.evaluator.forgotten_calls

    def bytes_given(self) -> int:
        """Return the size, in bytes, of all arrays that were given so far."""
        given = [] if self._recording is None else self._recording.arrays
        for spec, _ in given[self._seen_given :]:
            self._bytes_given += math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
        self._seen_given = len(given)
        return self._bytes_given

    def forget(self, evaluations: int) -> None:
        """Drop the results of the first `evaluations` evaluations; to read one is an error
        afterwards."""
        if self._recording is not None:
            self._recording.evaluator.forget(self._recording, evaluations)

    @property
    def has_readers(self) -> bool:
        """Return whether somebody still has values of the scope, once it is left."""
        return self._recording is not None and bool(self._recording.stores())
