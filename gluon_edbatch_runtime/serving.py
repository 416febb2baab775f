"""Serve exported models without MXNet: the engine, and what the server makes of an exported folder.

``python -m gluon_edbatch_core.serving FOLDER`` serves such folders by REST and gRPC.
"""

from collections.abc import Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Callable, Optional, Union

from gluon_edbatch_core.bundle.sample_schema import json_of
from gluon_edbatch_core.errors import (
    BatchError,
    RecordError,
    StaleValueError,
    StepsError,
)
from gluon_edbatch_core.serving.folder import Served
from gluon_edbatch_core.serving.metrics import Histogram, Metrics
from gluon_edbatch_core.serving.requests import PATIENCE, Request
from gluon_edbatch_core.serving.sample_engine import SampleEngine, at_least

from .models import Model, load

__all__ = ['Histogram', 'Metrics', 'ModelEngine', 'Served']

MOST_SAMPLES = 4096  # of a scope, which keeps their values; others begin a new one
_OF_ALL = BatchError, StaleValueError  # errors that another sample may have caused
_WARM_UP = 16  # examples of a bundle that run before the first request


class ModelEngine(SampleEngine):
    """Evaluate samples of many callers together with an exported model, as
    ``gluon_edbatch.serving.Engine`` does with MXNet.

    Parameters
    ----------
    model : Model
        What `load` returns. Samples that read values wait for each other, and others join them.
    warm_up : sequence, optional
        Samples that run, alone and together, before the first request is accepted. By default
        examples of the export.
    max_batch : int, default 256
        Samples that run together.
    max_queue : int, default 512
        Requests that may wait; more are refused at once.
    max_wait : float, default 1
        Seconds that the samples before a request may take; if they take longer, a request without a
        deadline is refused at once.
    max_rounds : int, default 10000
        Rounds that a sample may take; it fails if it needs more.
    observe : callable, optional
        The engine's thread calls it with each name and value that it counts.
    """

    def __init__(
        self,
        model: Model,
        warm_up: Optional[Sequence[Any]] = None,
        max_batch: int = 256,
        max_queue: int = 512,
        max_wait: float = PATIENCE,
        max_rounds: int = 10_000,
        observe: Optional[Callable[[str, float], None]] = None,
    ):
        at_least('max_rounds', max_rounds, 1)
        new_batch = partial(_ModelBatch, model, max_rounds)
        samples = model.examples[:_WARM_UP] if warm_up is None else warm_up
        self._model = model
        super().__init__(new_batch, samples, max_batch, max_queue, max_wait, observe)

    def _get_warm(self) -> None:
        super()._get_warm()
        self._batches.close()
        self._model.reset()  # what the code keeps on the model is that of the export


class _ModelBatch:
    """Samples of an exported model that record into one scope."""

    is_beginning = False  # see `ContinuousBatching`

    def __init__(self, model: Model, max_rounds: int):
        self._max_rounds, self._admitted = max_rounds, 0
        self._rounds: dict[Request, int] = {}
        self._run_inside = Context().run  # a scope is entered in it, and not in the thread
        self._run: Any = self._run_inside(model.running)

    def __len__(self) -> int:
        return len(self._rounds)

    @property
    def is_full(self) -> bool:
        """Return whether new samples need another scope."""
        return self._admitted > (MOST_SAMPLES if len(self) else 0)

    def admit(self, requests: Sequence[Request], done: list[Request]) -> list[Request]:
        """Run samples until they wait, and append those that fail to `done`. Return requests whose
        error another sample may have caused."""
        self._admitted += len(requests)
        self._run.steps.again()
        self._rounds.update(dict.fromkeys(requests, 0))
        suspects: list[Request] = []
        for request in requests:
            begin = partial(self._run.start, request, request.sample)
            self._advance(request, begin, done, suspects)
        return suspects

    def round(self, done: list[Request], is_only: bool) -> None:
        """Evaluate what the samples wait for, advance them, and append finished requests."""
        self._run.steps.again()
        now = monotonic()
        for request in [each for each in self._rounds if each.is_given_up(now)]:
            self._end(request, done)
        results, answers = self._run_inside(self._run.evaluate)
        for request, result in results.items():
            request.result = result
            self._end(request, done)
        for request, answer in answers.items():
            suspects: list[Request] = []
            self._advance(request, partial(self._run.advance, request, answer), done, suspects)
            if suspects:
                error: Any = request.error
                self._rounds[request], request.error = 0, None
                raise error

    def _advance(
        self,
        request: Request,
        step: Callable[[], None],
        done: list[Request],
        suspects: list[Request],
    ) -> None:
        self._rounds[request] += 1
        try:
            if self._rounds[request] > self._max_rounds:
                raise StepsError(f'a sample waited for values {self._max_rounds} times')
            self._run_inside(step)
        except Exception as error:
            request.error = error
            self._end(request, suspects if isinstance(error, _OF_ALL) else done)

    def _end(self, request: Request, among: list[Request]) -> None:
        del self._rounds[request]
        self._run.drop(request)
        among.append(request)

    def close(self, error: Optional[Exception] = None) -> list[Request]:
        """Leave the scope, and return the requests that were in it."""
        self._run_inside(self._run.close, error)
        return list(self._rounds)


def load_served(folder: Union[str, Path]) -> Served:
    """Return what the server serves of the folder of an exported model: samples and results are
    JSON. Raises BundleError if the folder is no complete, unchanged model."""
    model = load(folder)

    def read(sample: Any) -> Any:
        try:
            model.read(sample)
        except RecordError as error:
            raise ValueError(str(error)) from None
        return sample

    few = model.examples[:_WARM_UP]
    return Served(model, model.schema, read, json_of, few, engine=ModelEngine)
