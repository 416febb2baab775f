"""One thread that evaluates what many ask for."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from time import monotonic, perf_counter
from typing import Any, Callable, Optional, Union

from ..branching.program_interpreter import ControlFlowProgram
from ..errors import DeadlineError, EngineClosedError
from ..program.network_program import Program
from ..schedule import FSMScheduler, Scheduler, get_scheduler
from ..subgraph.options import CompileOptions, current_options
from .lanes import Lanes
from .metrics import Metrics
from .pace import Expectation, Pace, short_intervals
from .programs import ProgramRounds
from .requests import PATIENCE, Request, RequestQueue


class Engine:
    r"""Serves a model that is written for one sample: samples of many users are evaluated together.

    One thread evaluates. Samples that come while it does wait for its next round, and all of them
    then join those that are on their way: there is no window to wait for, and nothing to tune. A
    sample leaves when it is done, whatever the others do.

    Parameters
    ----------
    predict : callable, or Program
        Gives a sample's result. If it has to look at values on its way, it is a generator or
        coroutine function as `run_concurrently` takes them, or what `compile_program` or
        `load_program` gave: samples then join at every round. Results have NumPy arrays in the
        place of NDArrays. It runs in the engine's thread, and may run again for a sample whose
        minibatch had an error.
    warm_up : sequence, optional
        Samples that are like those to come. They are run, alone and together, before the first
        request is taken: kernels are compiled then, and scheduling is learned.
    max_batch : int, optional
        Samples that are on their way together: by default 256, and 64 for a program, as larger
        batches of images are no faster.
    max_queue : int, default 512
        Requests that wait; others are refused at once.
    max_wait : float, default 1
        Seconds that what is before a request may take, by how fast requests were done lately; where
        that is more, a request without a deadline is refused at once.
    max_rounds : int, default 10000
        Rounds of a sample that looks at values; one that takes more fails.
    scheduler : str or Scheduler, optional
        See `batching`. By default one that learns while the engine warms up, and not afterwards.
    compile_options : CompileOptions, optional
        By default the present ones.
    observe : callable, optional
        Is called in the engine's thread with the name and value of all that it counts: an outcome
        and a number of requests, or a histogram of `Metrics` and what is added to it.

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
        is_program = isinstance(predict, (Program, ControlFlowProgram))
        self._max_batch = (64 if is_program else 256) if max_batch is None else max_batch
        for name, value, least in (
            ('max_batch', self._max_batch, 1), ('max_queue', max_queue, 1),
            ('max_rounds', max_rounds, 1), ('max_wait', max_wait, 0),
        ):  # fmt: skip
            if not value >= least:
                raise ValueError(f'{name} is {least} or more, not {value}')
        self._scheduler = FSMScheduler() if scheduler is None else get_scheduler(scheduler)
        self._rounds: Union[Lanes, ProgramRounds]
        if is_program:
            self._rounds = ProgramRounds(predict)  # type: ignore[arg-type]
        else:
            options = compile_options or current_options()
            self._rounds = Lanes(predict, self._scheduler, options, max_rounds)
        self._learns, self._warm_up = scheduler is None, list(warm_up)
        self._expectation, self._pace = Expectation(), Pace()
        self._queue = RequestQueue(max_queue, self._expectation, max_wait)
        self._metrics, self._observe = Metrics(), observe
        self._thread = threading.Thread(target=self._work, name='edb-engine', daemon=True)
        self._warm: Future[None] = Future()

    def submit(self, sample: Any, deadline: Optional[float] = None) -> 'asyncio.Future[Any]':
        """Ask for a sample's result, in asyncio: ``result = await engine.submit(sample)``.

        Parameters
        ----------
        sample : object
            The argument of `predict`. Nobody may change it until the result is there.
        deadline : float, optional
            Seconds from now on. More urgent requests go first, and when it has passed, a
            `DeadlineError` is the result. Requests without one are in the row as if it was 1, and
            are computed however long they wait.

        Returns
        -------
        asyncio.Future
            Of what `predict` returns, or of the exception that it has raised for this sample.
            Cancelling it, or the task that awaits it, takes the sample out.

        Raises
        ------
        QueueFullError
            At once, if `max_queue` requests wait, or if what is before it would take longer than
            its deadline or, without one, than `max_wait`, by how long requests took lately.
        EngineClosedError
            If the engine was not started, or was told to stop.
        """
        return self.submit_all([sample], deadline)[0]

    def submit_all(
        self,
        samples: Sequence[Any],
        deadline: Optional[float] = None,
        part: Optional[Callable[[int, Any], None]] = None,
    ) -> 'list[asyncio.Future[Any]]':
        """`submit` for several samples, of which all are taken, or none.

        Parameters
        ----------
        samples : sequence
            Arguments of `predict`.
        deadline : float, optional
            See `submit`.
        part : callable, optional
            Is called in the engine's thread with a sample's number among these and each value that
            `predict` gives to `gluon_edbatch.serving.emit` for it, before the result is there.

        Returns
        -------
        list of asyncio.Future
        """
        loop, now = asyncio.get_running_loop(), monotonic()
        requests = [Request(sample, loop.create_future(), now, deadline) for sample in samples]
        if part is not None:
            for number, request in enumerate(requests):
                request.part = partial(part, number)
        self._queue.put(requests)
        return [request.reply for request in requests]

    def future(self, sample: Any, deadline: Optional[float] = None) -> 'Future[Any]':
        """Ask for a sample's result, in any thread: ``engine.future(sample).result()``.

        Parameters
        ----------
        sample : object
            See `submit`.
        deadline : float, optional
            See `submit`.

        Returns
        -------
        concurrent.futures.Future
        """
        reply: Future[Any] = Future()
        self._queue.put([Request(sample, reply, monotonic(), deadline)])
        return reply

    def update(self, change: Callable[[], Any]) -> 'Future[Any]':
        """Change the model while it serves, as by ``lambda: net.load_parameters(file)``: when what
        is on its way has come to its end, and before anything else begins. No sample sees both.

        Parameters
        ----------
        change : callable
            Of no arguments; it runs in the engine's thread.

        Returns
        -------
        concurrent.futures.Future
            Of what `change` returns, or raises; ``await asyncio.wrap_future(...)`` waits for it.
        """
        return self._queue.put_update(change)

    def metrics(self) -> Metrics:
        """What it has done until now, times in seconds; ``.prometheus()`` is text for a scraper.
        It may be asked from any thread, also before the engine was started and after it ended."""
        queue, found = self._queue, deepcopy(self._metrics)
        found.outcomes['refused'] = queue.refused
        found.outcomes['cancelled'] += queue.cancelled
        return replace(found, queued=len(queue), running=len(self._rounds))

    def start(self) -> None:
        """Warm up, then take requests.

        Raises
        ------
        Exception
            What `predict` raised for a sample of `warm_up`.
        """
        self._thread.start()
        self._warm.result()

    def stop(self) -> None:
        """Take no more requests; those that were taken are done. Returns at once, and may be called
        by a handler of a signal: ``loop.add_signal_handler(signal.SIGTERM, engine.stop)``."""
        self._queue.close()

    def close(self) -> None:
        """`stop`, and wait until all is done."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> 'Engine':
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> 'Engine':
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.to_thread(self.close)

    def _work(self) -> None:
        try:
            self._get_warm()
        except BaseException as error:
            self._rounds.close()
            self._warm.set_exception(error)
            return
        self._queue.open()
        self._warm.set_result(None)
        try:
            with short_intervals():
                while self._step():
                    pass
        except BaseException as error:  # as SystemExit, raised by what the engine was given
            self._abandon(EngineClosedError(f'the engine ended by {error!r}'))
        finally:
            self._queue.close()
            self._rounds.close()

    def _abandon(self, error: EngineClosedError) -> None:
        """Nobody shall wait for what will not come."""
        self._queue.close()
        while (update := self._queue.take_update()) is not None:
            update.reply.set_exception(error)
        left = [*self._queue.begun, *(self._queue.take(len(self._queue), 0) or [])]
        for request in left:
            request.error = error
        self._answer(left)

    def _step(self) -> bool:
        """One round; False if there is nothing to do any more."""
        running = len(self._rounds)
        if not running and not len(self._queue):
            self._rounds.rest()
        requests: Optional[list[Request]] = []
        is_beginning = self._rounds.is_beginning
        if not is_beginning and self._pace.may_join(running):
            requests = self._queue.take(self._max_batch - running, running)
        if requests is None:
            return False
        begin, now = perf_counter(), monotonic()
        wanted: list[Request] = []
        late: list[Request] = []
        for request in requests:
            request.begun = now
            (late if request.is_given_up(now) else wanted).append(request)
        done = self._rounds.admit(wanted)
        running = len(self._rounds)
        if running:
            queued = len(self._queue)
            self._note('batch_size', running)
            if self._observe is not None:
                self._observe('queued', queued)
            done += self._rounds.round()
            seconds = perf_counter() - begin
            self._pace.note(seconds, joined=bool(wanted), is_beginning=is_beginning)
            if queued or 2 * running >= self._max_batch:  # fewer do not tell how many can be done
                self._expectation.note_round(len(done), seconds)
        elif not requests:
            self._rounds.rest()
            self._do_update()
        self._answer(late + done)
        return True

    def _do_update(self) -> None:
        update = self._queue.take_update()
        if update is not None and update.reply.set_running_or_notify_cancel():
            try:
                update.reply.set_result(update.do())
            except BaseException as error:
                update.reply.set_exception(error)

    def _answer(self, done: list[Request]) -> None:
        """Tell those who wait: each event loop once."""
        now = monotonic()
        by_loop: dict[Any, list[Request]] = defaultdict(list)
        self._queue.begun.difference_update(done)
        for request in done:
            if request.deadline < now and request.error is None:
                request.error = DeadlineError(
                    f'the deadline passed {1e3 * (now - request.deadline):.0f} ms ago, '
                    f'{1e3 * (now - request.arrived):.0f} ms after the request came'
                )
            reply = request.reply
            if isinstance(reply, Future):
                by_loop[None].append(request)
                self._count(request, reply.set_running_or_notify_cancel(), now)
            else:
                by_loop[reply.get_loop()].append(request)
                self._count(request, not reply.cancelled(), now)
        seconds = [now - request.begun for request in done if request.error is None]
        if seconds:
            self._expectation.note_answers(sum(seconds) / len(seconds))
        _reply(by_loop.pop(None, []))  # when all is counted: who gets the last answer may ask
        for loop, requests in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_reply, requests)

    def _count(self, request: Request, is_wanted: bool, now: float) -> None:
        if not is_wanted:
            self._note('cancelled')
        elif request.error is not None:
            self._note('expired' if isinstance(request.error, DeadlineError) else 'failed')
        else:
            self._note('answered')
            self._note('waited', request.begun - request.arrived)
            self._note('evaluated', now - request.begun)
            self._note('total', now - request.arrived)

    def _note(self, name: str, value: float = 1) -> None:
        self._metrics._note(name, value)
        if self._observe is not None:
            self._observe(name, value)

    def _get_warm(self) -> None:
        """Run the samples to warm up with: alone, together, and joining each other."""
        if not self._warm_up:
            return
        size = 1
        while size < self._max_batch:
            self._run_to_end(size)
            size *= 2
        self._run_to_end(self._max_batch)
        self._run_to_end(self._max_batch, together=False)
        self._run_to_end(self._max_batch)
        if self._learns and isinstance(self._scheduler, FSMScheduler):
            self._scheduler.learn = False
        begin = perf_counter()
        self._run_to_end(self._max_batch)
        self._expectation.note_round(self._max_batch, perf_counter() - begin)
        self._rounds.rest()

    def _run_to_end(self, size: int, together: bool = True) -> None:
        """Evaluate so many samples to warm up with, or let them join one by one."""
        samples = islice(cycle(self._warm_up), size)
        requests = [Request(sample, Future(), 0.0, None) for sample in samples]
        joining, others = (requests, iter(())) if together else (requests[:1], iter(requests[1:]))
        while joining or len(self._rounds):
            done = self._rounds.admit(joining)
            if len(self._rounds):
                done += self._rounds.round()
            for request in done:
                if request.error is not None:
                    raise request.error
            joining = list(islice(others, 1))


def _reply(requests: Sequence[Request]) -> None:
    for request in requests:
        if request.reply.done():  # it was cancelled
            continue
        if request.error is None:
            request.reply.set_result(request.result)
        else:
            request.reply.set_exception(request.error)
