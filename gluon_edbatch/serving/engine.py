"""One thread that evaluates what many ask for."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from time import monotonic, perf_counter
from typing import Any, Callable, Optional, Union

from ..branching.program_interpreter import ControlFlowProgram
from ..errors import DeadlineError, EngineClosedError
from ..program.network_program import Program
from ..schedule import FSMScheduler, Scheduler, get_scheduler
from ..subgraph.options import CompileOptions, current_options
from .expectation import Expectation
from .join_pace import Pace
from .lanes import Lanes
from .metrics import Counting, Metrics, Observer
from .programs import ProgramRounds
from .requests import PATIENCE, Part, Request, RequestQueue, Update
from .turns import ShortTurns


class Engine:
    r"""Serves a model that is written for one sample: samples of many users are evaluated together.

    One thread evaluates. Samples that come while it does wait for its next round, and all of them
    then join those that are on their way: there is no window to wait for, and nothing to tune. A
    sample leaves when it is done, whatever the others do.

    Parameters
    ----------
    predict : callable, or Program
        What a sample's result is, as a function of the sample. If it has to look at values on its
        way, it is a generator or coroutine function as `run_concurrently` takes them, or what
        `compile_program` or `load_program` gave: samples then join at every round. Results have
        NumPy arrays in the place of NDArrays. It runs in the engine's thread, and may run again for
        a sample whose minibatch had an error.
    warm_up : sequence, optional
        Samples that are like those to come. They are run, alone and together, before the first
        request is taken: kernels are compiled then, and scheduling is learned.
    max_batch : int, optional
        Samples that are on their way together: by default 256, and 64 for a program, as larger
        batches of images are no faster.
    max_queue : int, default 512
        Requests that wait; others are refused at once.
    max_wait : float, optional
        Seconds that what is before a request may take, by how fast requests were done lately; where
        that is more, a request without a deadline is refused at once. By default 1.
    max_rounds : int, default 10000
        Rounds of a sample that looks at values; one that takes more fails.
    scheduler : str or Scheduler, optional
        See `batching`. By default one that learns while the engine warms up, and not afterwards.
    compile_options : CompileOptions, optional
        By default the present ones.
    observe : Observer, optional
        Is told, in the engine's thread, what it counts.

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
        max_wait: Optional[float] = None,
        max_rounds: int = 10_000,
        scheduler: Union[str, Scheduler, None] = None,
        compile_options: Optional[CompileOptions] = None,
        observe: Optional[Observer] = None,
    ):
        for name, value in (
            ('max_batch', max_batch), ('max_queue', max_queue), ('max_rounds', max_rounds)
        ):  # fmt: skip
            if value is not None and value < 1:
                raise ValueError(f'{name} is 1 or more, not {value}')
        if max_wait is not None and not max_wait >= 0:
            raise ValueError(f'max_wait is 0 or more, not {max_wait}')
        self._scheduler = FSMScheduler() if scheduler is None else get_scheduler(scheduler)
        self._rounds: Union[Lanes, ProgramRounds]
        if isinstance(predict, (Program, ControlFlowProgram)):
            self._rounds, most = ProgramRounds(predict), 64
        else:
            most = 256
            options = compile_options or current_options()
            self._rounds = Lanes(predict, self._scheduler, options, max_rounds)
        self._learns = scheduler is None
        self._warm_up, self._max_batch = list(warm_up), max_batch or most
        self._expectation = Expectation()
        max_wait = PATIENCE if max_wait is None else max_wait
        self._queue = RequestQueue(max_queue, self._expectation, max_wait)
        self._counting = Counting(observe)
        self._pace = Pace()
        self._replies: dict[asyncio.AbstractEventLoop, list[Request]] = {}
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
            At once, if `max_queue` requests wait, or so many that the deadline will have passed,
            by how long requests took lately, or without one, that it would take too long
            (`max_wait`).
        EngineClosedError
            If the engine was not started, or was told to stop.
        """
        return self.submit_all([sample], deadline)[0]

    def submit_all(
        self,
        samples: Sequence[Any],
        deadline: Optional[float] = None,
        part: Optional[Part] = None,
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
        """The same in any thread: ``engine.future(sample).result()``.

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
        update = Update(change)
        self._queue.put_update(update)
        return update

    def metrics(self) -> Metrics:
        """What it has done until now, times in seconds; ``.prometheus()`` is text for a scraper.
        It may be asked from any thread, also before the engine was started and after it ended."""
        queue = self._queue
        return self._counting.metrics(len(queue), len(self._rounds), queue.refused, queue.cancelled)

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
            with ShortTurns():
                while self._step():
                    pass
        except BaseException as error:  # as SystemExit, raised by what the engine was given
            self._abandon(error)
        finally:
            self._queue.close()
            self._rounds.close()

    def _abandon(self, error: BaseException) -> None:
        """Nobody shall wait for what will not come."""
        self._queue.close()
        update = self._queue.take_update()
        while update is not None:
            update.set_exception(EngineClosedError(f'the engine ended by {error!r}'))
            update = self._queue.take_update()
        left = [*self._queue.begun, *(self._queue.take(len(self._queue), 0) or [])]
        for request in left:
            request.error = EngineClosedError(f'the engine ended by {error!r}')
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
        begin = perf_counter()
        done = self._rounds.admit(self._still_wanted(requests)) if requests else []
        running = len(self._rounds)
        if running:
            queued = len(self._queue)
            self._counting.note_round(running, queued)
            done += self._rounds.round()
            seconds = perf_counter() - begin
            self._pace.note(seconds, joined=bool(requests), is_beginning=is_beginning)
            if queued or 2 * running >= self._max_batch:  # fewer do not tell how many can be done
                self._expectation.note_round(len(done), seconds)
        elif not requests:
            self._rounds.rest()
            self._do_update()
        if done:
            self._answer(done)
        return True

    def _still_wanted(self, requests: list[Request]) -> list[Request]:
        now, wanted = monotonic(), []
        late = []
        for request in requests:
            request.begun = now
            if request.reply.cancelled():
                self._queue.begun.discard(request)
                self._counting.count('cancelled')
            elif request.deadline < now:
                request.error = _late(request, now)
                late.append(request)
            else:
                wanted.append(request)
        if late:
            self._answer(late)
        return wanted

    def _do_update(self) -> None:
        update = self._queue.take_update()
        if update is not None and update.set_running_or_notify_cancel():
            try:
                update.set_result(update.do())
            except BaseException as error:
                update.set_exception(error)

    def _answer(self, done: list[Request]) -> None:
        """Tell those who wait: each event loop once."""
        now = monotonic()
        self._queue.begun.difference_update(done)
        answered: list[Request] = []
        in_threads: list[Request] = []
        for request in done:
            if request.deadline < now and request.error is None:
                request.error = _late(request, now)
            reply = request.reply
            if isinstance(reply, Future):
                is_wanted = reply.set_running_or_notify_cancel()
                if is_wanted:
                    in_threads.append(request)
            else:
                is_wanted = not reply.cancelled()
                self._replies.setdefault(reply.get_loop(), []).append(request)
            if is_wanted and request.error is None:
                answered.append(request)
            else:
                self._counting.count(_outcome(request, is_wanted))
        if answered:
            evaluated = [now - request.begun for request in answered]
            self._counting.note_answered(
                [request.begun - request.arrived for request in answered], evaluated
            )
            self._expectation.note_answers(sum(evaluated) / len(evaluated))
        for request in in_threads:  # when all is counted: who gets the last answer may ask
            _reply(request)
        for loop, requests in self._replies.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_reply_all, requests)
        self._replies.clear()

    def _get_warm(self) -> None:
        """Run the samples to warm up with: alone, together, and joining each other."""
        samples = self._warm_up
        if not samples:
            return
        size = 1
        while True:
            self._run_to_end(list(islice(cycle(samples), size)), together=True)
            if size >= self._max_batch:
                break
            size = min(2 * size, self._max_batch)
        for together in (False, True):
            self._run_to_end(list(islice(cycle(samples), self._max_batch)), together)
        if self._learns and isinstance(self._scheduler, FSMScheduler):
            self._scheduler.learn = False
        seconds = self._run_to_end(list(islice(cycle(samples), self._max_batch)), together=True)
        self._expectation.note_round(self._max_batch, seconds)
        self._rounds.rest()

    def _run_to_end(self, samples: list[Any], together: bool) -> float:
        """Gives the seconds that it took."""
        begin = perf_counter()
        requests = [Request(sample, Future(), 0.0, None) for sample in samples]
        joining, done = requests if together else requests[:1], []
        others = iter([] if together else requests[1:])
        while joining or len(self._rounds):
            done += self._rounds.admit(joining)
            if len(self._rounds):
                done += self._rounds.round()
            joining = list(islice(others, 1))
        for request in done:
            if request.error is not None:
                raise request.error
        return perf_counter() - begin


def _late(request: Request, now: float) -> DeadlineError:
    return DeadlineError(
        f'the deadline passed {1e3 * (now - request.deadline):.0f} ms ago, '
        f'{1e3 * (now - request.arrived):.0f} ms after the request came'
    )


def _outcome(request: Request, is_wanted: bool) -> str:
    if not is_wanted:
        return 'cancelled'
    return 'expired' if isinstance(request.error, DeadlineError) else 'failed'


def _reply_all(requests: Sequence[Request]) -> None:
    for request in requests:
        if not request.reply.done():
            _reply(request)


def _reply(request: Request) -> None:
    if request.error is None:
        request.reply.set_result(request.result)
    else:
        request.reply.set_exception(request.error)
