"""A runtime for MLServer, whose folder's ``model-settings.json`` has it as ``implementation``.

A request has one input of bytes, an element a sample, each the JSON text of one. They are checked
here, in the thread of the event loop, before the engine sees them. Answers are texts likewise.
"""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import mlserver
from mlserver.errors import InferenceError, MLServerError
from mlserver.handlers import custom_handler
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput
from mlserver.utils import get_model_uri
from prometheus_client import Counter, Histogram
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.responses import HTMLResponse

from ..errors import DeadlineError, EngineClosedError, QueueFullError
from .admission import TOO_LATE, UNAVAILABLE, log_only_faults
from .engine import Engine
from .folder import load_folder
from .metrics import SECONDS, SIZES
from .requests import PATIENCE

MOST_SAMPLES, MOST_BYTES = 1024, 1 << 20  # of a request, of a sample
_STATUS = {
    QueueFullError: UNAVAILABLE, EngineClosedError: UNAVAILABLE, DeadlineError: TOO_LATE
}  # fmt: skip
_PAGE_HEADERS = {
    'Content-Security-Policy': "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'",
    'X-Content-Type-Options': 'nosniff',
}


class Runtime(mlserver.MLModel):
    """Serves a folder (see `folder.Served`) by an `Engine`."""

    async def load(self) -> bool:
        """Ready when it is warm."""
        log_only_faults()
        self._folder = Path(await get_model_uri(self._settings))
        served = await asyncio.to_thread(load_folder, self._folder)
        self._checked, self._served = TypeAdapter(served.request), served
        samples = [served.read(self._checked.validate_json(to_json(each)))
                   for each in served.warm_up]  # fmt: skip
        observe = PrometheusObserver(self.name)
        # Clients that each send a list, and then the next one, are no overload: how many requests
        # are on their way is for the process that listens to say.
        options = {'max_wait': PATIENCE, **served.options}
        self._engine = Engine(served.predict, samples, observe=observe, **options)
        await asyncio.to_thread(self._engine.start)
        gc.collect()
        gc.freeze()  # no later collection walks through MXNet's half a million objects
        return True

    async def unload(self) -> bool:
        """Finish what was taken."""
        engine: Optional[Engine] = getattr(self, '_engine', None)
        if engine is not None:
            await asyncio.to_thread(engine.close)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Results of the samples of a request, or one error for all of them."""
        samples, deadline = self._samples(payload), _deadline(payload)
        replies: list[Any] = []
        try:
            replies = self._engine.submit_all(samples, deadline)
            results = await asyncio.gather(*replies)
        except tuple(_STATUS) as error:
            raise MLServerError(str(error), _STATUS[type(error)]) from None
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise InferenceError(f'{type(error).__name__}: {error}') from error
        finally:
            for reply in replies:
                reply.cancel()  # where one failed, nobody waits for the others
        answers = [to_json(self._served.write(result)) for result in results]
        output = ResponseOutput(
            name='answers', shape=[len(answers)], datatype='BYTES', data=answers
        )
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])

    def _samples(self, payload: InferenceRequest) -> list[Any]:
        """Read the samples of a request; raise MLServerError if one is wrong."""
        if len(payload.inputs) != 1 or payload.inputs[0].datatype != 'BYTES':
            raise InferenceError('a request has one input, of datatype BYTES: a text a sample')
        data = payload.inputs[0].data.root
        texts = data if isinstance(data, list) else [data]
        if not 1 <= len(texts) <= MOST_SAMPLES:
            raise InferenceError(f'a request has 1 to {MOST_SAMPLES} samples, not {len(texts)}')
        samples = []
        for number, text in enumerate(texts):
            if not isinstance(text, (str, bytes)):
                raise InferenceError(f'sample {number} is to be a text, the JSON of one sample')
            if len(text) > MOST_BYTES:
                raise InferenceError(f'sample {number} is longer than {MOST_BYTES} bytes')
            try:
                samples.append(self._served.read(self._checked.validate_json(text)))
            except ValidationError as error:
                raise InferenceError(f'sample {number}: {_first(error)}') from None
            except (ValueError, RecursionError) as error:
                raise InferenceError(f'sample {number}: {error}') from None
        return samples

    @custom_handler(rest_path='/', rest_method='GET')  # type: ignore[untyped-decorator]
    async def page(self) -> HTMLResponse:
        """The folder's page."""
        path = self._folder / 'page.html'
        if not path.is_file():
            raise MLServerError('the folder has no page.html', 404)
        return HTMLResponse(path.read_text(encoding='utf-8'), headers=_PAGE_HEADERS)


def _deadline(payload: InferenceRequest) -> Optional[float]:
    deadline = getattr(payload.parameters, 'deadline', None)
    if deadline is None:
        return None
    if not isinstance(deadline, (int, float)) or not deadline >= 0:
        raise InferenceError('the parameter deadline is a number of seconds from now')
    return float(deadline)


def _first(error: ValidationError) -> str:
    """What is wrong, and where, without what was sent."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f'{found["msg"]} ({".".join(map(str, found["loc"])) or "all of it"})'[:300]


_made: dict[str, Any] = {}  # of this process, whatever models it has


def _metric(kind: Any, name: str, what: str, labels: Sequence[str] = (), **options: Any) -> Any:
    if name not in _made:  # not at import: MLServer says then where workers leave their counts
        _made[name] = kind(name, what, ['model', *labels], **options)
    return _made[name]


class PrometheusObserver:
    """Tells Prometheus, from all workers, what an engine counts."""

    def __init__(self, model: str):
        self._model = model
        self._requests = _metric(
            Counter, 'edb_requests', 'Samples by what became of them.', ['outcome']
        )
        self._seen = {
            name: _metric(Histogram, name, what, buckets=buckets).labels(model)
            for name, what, buckets in (
                ('edb_batch_size', 'Samples in a round.', SIZES),
                ('edb_queued', 'Samples that waited when a round began.', (0, *SIZES)),
                ('edb_waited_seconds', 'Of answered samples, in the queue.', SECONDS),
                ('edb_evaluated_seconds', 'Of answered samples, afterwards.', SECONDS),
                ('edb_total_seconds', 'Both.', SECONDS),
            )
        }

    def count(self, outcome: str, count: int = 1) -> None:
        """See `Observer`."""
        self._requests.labels(self._model, outcome).inc(count)

    def observe(self, name: str, value: float) -> None:
        """See `Observer`."""
        self._seen[f'edb_{name}'].observe(value)
