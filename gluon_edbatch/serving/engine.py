"""The engine: samples of many callers are evaluated together with MXNet."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, Optional, Union

from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.schedule import FSMScheduler, Scheduler, get_scheduler
from gluon_edbatch_core.serving.requests import PATIENCE
from gluon_edbatch_core.serving.sample_engine import SampleEngine, at_least

from ..program.network_program import Program
from ..subgraph.options import CompileOptions, current_options
from .program_batch import ProgramBatch
from .scope_batch import ScopeBatch, ScopedModel


class Engine(SampleEngine):
    r"""Serve a model that is written for one sample: evaluate samples of many users together.

    One thread evaluates, in rounds. Samples that arrive during a round join the next one, or a
    later one if there are many. There is no batching window to tune. A sample leaves when it is
    done, and does not wait for the others.

    Parameters
    ----------
    predict : callable, or Program
        Computes a sample's result. If it reads values on its way, samples join at every round,
        as in `run_concurrently`: it is a plain, generator or coroutine function, or the result of
        `compile_program` or `load_program`. Results have NumPy arrays in place of NDArrays. It runs
        in the engine's thread. It may run again for a sample whose batch had an error.
    warm_up : sequence, optional
        Samples like those to come. They run, alone and together, before the first request is
        accepted. This compiles kernels and learns a schedule.
    max_batch : int, optional
        Samples that run together. The default is 256, and 64 for a program, as larger batches of
        images are no faster.
    max_queue : int, default 512
        Requests that may wait; more are refused at once.
    max_wait : float, default 1
        Seconds that the samples before a request may take, by how fast requests were done lately.
        If they take longer, a request without a deadline is refused at once.
    max_rounds : int, default 10000
        Rounds that a sample may take; it fails if it needs more.
    scheduler : str or Scheduler, optional
        See `batching`. The default learns while the engine warms up, and not afterwards.
    compile_options : CompileOptions, optional
        The default is the options in effect now.
    observe : callable, optional
        The engine's thread calls it with each name and value that it counts: an outcome and a
        number of requests, or a histogram of `Metrics` and the value added to it.

    Raises
    ------
    ValueError
        If a number is less than 1, or `max_wait` less than 0.

    Examples
    --------
    >>> async with edb.serving.Engine(net, warm_up=trees[:64]) as engine:
    ...     scores = await engine.submit(tree, deadline=0.2)         # in a handler of a server

    >>> with edb.serving.Engine(net.parse, warm_up=sentences) as engine:
    ...     heads = engine.future(sentence).result()                 # in a thread
    """

    def __init__(
        self,
        predict: Union[Callable[[Any], Any], Program, ControlFlowProgram],
        warm_up: Sequence[Any] = (),
        max_batch: Optional[int] = None,
        max_queue: int = 512,
        max_wait: float = PATIENCE,
        max_rounds: int = 10_000,
        scheduler: Union[str, Scheduler, None] = None,
        compile_options: Optional[CompileOptions] = None,
        observe: Optional[Callable[[str, float], None]] = None,
    ):
        at_least('max_rounds', max_rounds, 1)
        is_program = isinstance(predict, (Program, ControlFlowProgram))
        self._scheduler = FSMScheduler() if scheduler is None else get_scheduler(scheduler)
        self._learns = scheduler is None
        model = ScopedModel(
            predict, self._scheduler, compile_options or current_options(), max_rounds
        )
        super().__init__(
            partial(ProgramBatch, predict)  # type: ignore[arg-type]
            if is_program
            else partial(ScopeBatch, model),
            warm_up,
            (64 if is_program else 256) if max_batch is None else max_batch,
            max_queue,
            max_wait,
            observe,
        )

    def _end_learning(self) -> None:
        if self._learns and isinstance(self._scheduler, FSMScheduler):
            self._scheduler.learn = False
