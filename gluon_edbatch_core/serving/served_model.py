"""Serve the model of one folder: validate requests, and evaluate them with an engine."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
from prometheus_client import Counter, Histogram
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from ..errors import DeadlineError, EngineClosedError, QueueFullError
from .folder import load_folder, whose_fault
from .metrics import OUTCOMES, SECONDS, SIZES
from .open_inference import DATATYPE_OF, DTYPES, Inference, RequestError, first_fault

_STATUS = {QueueFullError: 503, EngineClosedError: 503, DeadlineError: 504}


class ServedModel:
    """Load a folder (see `folder.Served`), and evaluate its samples with an engine. Raises
    FolderError, with one sentence, if something is missing or damaged, or if warming up fails."""

    def __init__(self, name: str, folder: Path):
        self._served = served = load_folder(folder)
        self._inputs = served.inputs or {'samples': ('BYTES', ())}
        self._outputs = served.outputs or {'answers': ('BYTES', ())}
        with whose_fault(folder, 'does not warm up'):
            is_type = served.request is not None and not isinstance(served.request, dict)
            self._check = TypeAdapter(served.request if is_type else Any)
            warm_up = served.warm_up
            if not served.inputs:
                warm_up = [{'samples': to_json(each)} for each in warm_up]
            options = {'observe': _observer(name), **served.options}
            self._most = options.get('max_queue', 512)
            engine = served.engine or import_module('gluon_edbatch.serving').Engine
            self._engine = engine(served.predict, list(map(self._read, warm_up)), **options)
            self._engine.start()
        self.metadata = self._metadata(name)

    def close(self) -> None:
        """Refuse new requests, and wait until accepted ones are done."""
        self._engine.close()

    async def infer(
        self, request: Inference, part: Optional[Callable[[int, Any], None]] = None
    ) -> dict[str, Any]:
        """Return outputs for the samples of a request; `part` gets what `predict` emits (`Engine`).
        Raises RequestError if a sample is invalid, refused or fails: all share the error."""
        replies: list[Any] = []
        try:  # no await before the engine has the samples: a reload cannot come in between
            replies = self._engine.submit_all(self._samples(request), request.deadline, part)
            results = await asyncio.gather(*replies)
            return self._write(results)
        except RequestError:
            raise
        except tuple(_STATUS) as error:
            raise RequestError(_STATUS[type(error)], str(error)) from None
        except Exception as error:
            raise RequestError(400, f'not computed: {error}') from error
        finally:
            for reply in replies:
                reply.cancel()  # if one failed, give up the others

    def _samples(self, request: Inference) -> list[Any]:
        inputs = request.inputs
        if not self._served.inputs and len(inputs) == 1:  # by any name, and of any shape
            inputs = {'samples': next(iter(inputs.values())).ravel()}
        sent = self._split(inputs)
        if not 1 <= len(sent) <= self._most:
            what = f'a request has 1 to {self._most} samples (max_queue), not {len(sent)}'
            raise RequestError(400, f'{what}: split it' if sent else what)
        samples = []
        for number, each in enumerate(sent):
            try:
                samples.append(self._read(each))
            except (ValueError, RecursionError) as error:
                raise RequestError(400, f'sample {number}: {first_fault(error)}') from None
        return samples

    def _split(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Check input arrays, and split them along axis 0 into a dict for each sample."""
        if set(inputs) != set(self._inputs):
            names = f'{", ".join(self._inputs)}, not {", ".join(inputs)}'
            raise RequestError(400, f'the inputs are {names}')
        for name, (datatype, shape) in self._inputs.items():
            sent, found = DATATYPE_OF[inputs[name].dtype], inputs[name].shape
            fits = len(found) == len(shape) + 1 and all(
                [size in (-1, length) for size, length in zip(shape, found[1:])]
            )
            if sent != datatype or not fits:
                what = f'{datatype} of shape {[-1, *shape]}, not {sent} of shape {list(found)}'
                raise RequestError(400, f'input {name} is {what}')
        if len(set(map(len, inputs.values()))) != 1:
            raise RequestError(400, 'the first axis is that of samples: it differs between inputs')
        return [dict(zip(inputs, each)) for each in zip(*inputs.values())]

    def _read(self, arrays: dict[str, Any]) -> Any:
        served = self._served
        return served.read(
            arrays if served.inputs else self._check.validate_json(arrays['samples'])
        )

    def _write(self, results: Sequence[Any]) -> dict[str, Any]:
        answers = [self._served.write(result) for result in results]
        if not self._served.outputs:
            answers = [{'answers': to_json(each)} for each in answers]
        return {
            name: np.array([each[name] for each in answers], DTYPES[datatype])
            for name, (datatype, _) in self._outputs.items()
        }

    def _metadata(self, name: str) -> dict[str, Any]:
        """Return inputs and outputs in the protocol's form; -1 in a shape is any size."""
        found: dict[str, Any] = {'name': name, 'versions': ['1'], 'platform': 'gluon_edbatch'}
        for kind, tensors in (('inputs', self._inputs), ('outputs', self._outputs)):
            found[kind] = [
                {'name': name, 'datatype': datatype, 'shape': [-1, *shape]}
                for name, (datatype, shape) in tensors.items()
            ]
        if not self._served.inputs:
            texts = map(to_json, self._served.warm_up)
            example = from_json(min(texts, key=len, default=b'null'))
            told = self._served.request
            schema = told if isinstance(told, dict) else self._check.json_schema()
            found['parameters'] = {'schema': schema, 'example': example}
        return found


_REQUESTS = Counter('edb_requests', 'Samples by outcome.', ['model', 'outcome'])
_HISTOGRAMS = {
    name: Histogram(f'edb_{name}{unit}', what, ['model'], buckets=buckets)
    for name, unit, what, buckets in (
        ('batch_size', '', 'Samples in a round.', SIZES),
        ('queued', '', 'Samples that waited when a round began.', (0, *SIZES)),
        ('waited', '_seconds', 'Of answered samples, in the queue.', SECONDS),
        ('evaluated', '_seconds', 'Of answered samples, afterwards.', SECONDS),
        ('total', '_seconds', 'Both.', SECONDS),
    )
}


def _observer(model: str) -> Callable[[str, float], None]:
    """Return a function that passes an engine's counts to Prometheus (`observe` of `Engine`)."""
    told: dict[str, Callable[[float], None]] = {
        **{outcome: _REQUESTS.labels(model, outcome).inc for outcome in OUTCOMES},
        **{name: each.labels(model).observe for name, each in _HISTOGRAMS.items()},
    }
    return lambda name, value: told[name](value)
