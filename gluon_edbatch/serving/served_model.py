"""One model of a folder: answers requests of the Open Inference Protocol by an engine."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
from prometheus_client import Counter, Histogram
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from ..errors import DeadlineError, EngineClosedError, QueueFullError
from .engine import Engine
from .folder import load_folder, whose_fault
from .metrics import SECONDS, SIZES
from .open_inference import DTYPES, Inference, RequestError, Tensor, first_fault

MOST_BYTES = 1 << 20  # of a sample
_STATUS = {QueueFullError: 503, EngineClosedError: 503, DeadlineError: 504}


class ServedModel:
    """A folder (see `folder.Served`) and the engine that evaluates its samples.

    Raises
    ------
    FolderError
        If something is missing or damaged, or if warming up fails; the message is one sentence.
    """

    def __init__(self, name: str, folder: Path):
        self.name = name
        self._served = served = load_folder(folder)
        with whose_fault(folder, 'does not warm up'):
            self._check = TypeAdapter(Any if served.request is None else served.request)
            read = served.read if served.inputs else lambda each: self._sample(to_json(each))
            samples = [read(each) for each in served.warm_up]
            options = {'observe': PrometheusObserver(name), **served.options}
            self._most = options.get('max_queue', 512)
            self._engine = Engine(served.predict, samples, **options)
            self._engine.start()

    def close(self) -> None:
        """Finish what was taken."""
        self._engine.close()

    async def infer(
        self, request: Inference, part: Optional[Callable[[int, Any], None]] = None
    ) -> list[Tensor]:
        """Results of the samples of a request; `part` is given what `predict` emits (`Engine`).

        Raises
        ------
        RequestError
            With the one error that there is for all of them.
        """
        replies: list[Any] = []
        try:  # nothing is awaited before the engine has them: a reload cannot come in between
            replies = self._engine.submit_all(self._samples(request), request.deadline, part)
            results = await asyncio.gather(*replies)
            return self._outputs([self._served.write(result) for result in results])
        except RequestError:
            raise
        except tuple(_STATUS) as error:
            raise RequestError(_STATUS[type(error)], str(error)) from None
        except Exception as error:
            raise RequestError(400, f'not computed: {error}') from error
        finally:
            for reply in replies:
                reply.cancel()  # where one failed, nobody waits for the others

    def _samples(self, request: Inference) -> list[Any]:
        if self._served.inputs:
            return self._samples_of_arrays(request)
        if len(request.inputs) != 1 or request.inputs[0].datatype != 'BYTES':
            raise RequestError(400, 'a request has one input, of datatype BYTES: a text a sample')
        texts = request.inputs[0].data
        self._check_count(len(texts))
        return [self._read(number, self._sample, text) for number, text in enumerate(texts)]

    def _sample(self, text: Any) -> Any:
        if len(text) > MOST_BYTES:
            raise ValueError(f'is longer than {MOST_BYTES} bytes')
        return self._served.read(self._check.validate_json(text))

    def _read(self, number: int, read: Callable[[Any], Any], sent: Any) -> Any:
        try:
            return read(sent)
        except ValidationError as error:
            raise RequestError(400, f'sample {number}: {first_fault(error)}') from None
        except (ValueError, RecursionError) as error:
            raise RequestError(400, f'sample {number}: {error}') from None

    def _samples_of_arrays(self, request: Inference) -> list[Any]:
        """Sample k is a dict of the k-th array of each input."""
        expected, there = self._served.inputs, {each.name: each for each in request.inputs}
        if set(there) != set(expected) or len(there) != len(request.inputs):
            raise RequestError(400, f'the inputs are {", ".join(expected)}, not {", ".join(there)}')
        for name, (datatype, shape) in expected.items():
            each = there[name]
            fits = len(shape) == len(each.shape) - 1 and all(
                [size in (-1, length) for size, length in zip(shape, each.shape[1:])]
            )
            if each.datatype != datatype or not fits:
                what = f'{datatype} of shape {[-1, *shape]}, not {each.datatype}'
                raise RequestError(400, f'input {name} is {what} of shape {list(each.shape)}')
        counts = {each.shape[0] for each in request.inputs}
        if len(counts) != 1:
            raise RequestError(400, 'the first axis is that of samples: it differs between inputs')
        self._check_count(min(counts))
        arrays = [{each.name: each.data[i] for each in request.inputs} for i in range(min(counts))]
        return [self._read(i, self._served.read, each) for i, each in enumerate(arrays)]

    def _check_count(self, count: int) -> None:
        if not 1 <= count <= self._most:
            what = f'a request has 1 to {self._most} samples (max_queue), not {count}'
            raise RequestError(400, f'{what}: split it' if count else what)

    def _outputs(self, answers: Sequence[Any]) -> list[Tensor]:
        if not self._served.outputs:
            return [Tensor('answers', 'BYTES', (len(answers),), list(map(to_json, answers)))]
        outputs = []
        for name, (datatype, _) in self._served.outputs.items():
            array = np.stack([np.asarray(each[name], DTYPES[datatype]) for each in answers])
            outputs.append(Tensor(name, datatype, array.shape, array))
        return outputs

    @property
    def metadata(self) -> dict[str, Any]:
        """What goes in and comes out, as the protocol has it; a shape's -1 is of any size."""
        inputs = self._served.inputs or {'samples': ('BYTES', ())}
        outputs = self._served.outputs or {'answers': ('BYTES', ())}
        found: dict[str, Any] = {'name': self.name, 'versions': ['1'], 'platform': 'gluon_edbatch'}
        for kind, tensors in (('inputs', inputs), ('outputs', outputs)):
            found[kind] = [
                {'name': name, 'datatype': datatype, 'shape': [-1, *shape]}
                for name, (datatype, shape) in tensors.items()
            ]
        if not self._served.inputs:
            texts = map(to_json, self._served.warm_up)
            example = from_json(min(texts, key=len, default=b'null'))
            found['parameters'] = {'schema': self._check.json_schema(), 'example': example}
        return found


_made: dict[str, Any] = {}  # of this process: a model that is loaded again goes on counting


def metric(kind: Any, name: str, what: str, labels: Sequence[str], **options: Any) -> Any:
    """A metric of this process, made when it is first asked for."""
    if name not in _made:
        _made[name] = kind(name, what, labels, **options)
    return _made[name]


class PrometheusObserver:
    """Tells Prometheus, from all workers, what an engine counts."""

    def __init__(self, model: str):
        requests = metric(Counter, 'edb_requests', 'Samples by outcome.', ['model', 'outcome'])
        self._outcome = partial(requests.labels, model)
        self._seen = {
            name: metric(Histogram, f'edb_{name}', what, ['model'], buckets=buckets).labels(model)
            for name, what, buckets in (
                ('batch_size', 'Samples in a round.', SIZES),
                ('queued', 'Samples that waited when a round began.', (0, *SIZES)),
                ('waited_seconds', 'Of answered samples, in the queue.', SECONDS),
                ('evaluated_seconds', 'Of answered samples, afterwards.', SECONDS),
                ('total_seconds', 'Both.', SECONDS),
            )
        }

    def count(self, outcome: str, count: int = 1) -> None:
        """See `Observer`."""
        self._outcome(outcome).inc(count)

    def observe(self, name: str, value: float) -> None:
        """See `Observer`."""
        self._seen[name].observe(value)
