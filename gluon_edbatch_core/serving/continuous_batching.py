"""Continuous batching: samples join running ones at each round, and leave when they are done.

Running samples are in batches (`ScopeBatch`, `ProgramBatch`). New samples join the newest batch. A
new batch replaces it when it is full; the old batch's samples end there. An empty batch stays while
others arrive, as a new one costs time. If an evaluation fails, any sample may be at fault. The
batch's samples then begin again in two batches of half as many, until one is alone with its error.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Callable, Optional

from .requests import Request

SHARE = 0.5  # of the seconds of a round with joining, for rounds without, before the next
_LATELY = 3  # rounds with joining, of which the shortest counts


class ContinuousBatching:
    """Hold the running samples of one model, in batches that `new_batch` makes.

    A sample's first step, such as an encoder, may take much longer than later steps, and all others
    wait for it. After a round in which samples joined, rounds without joining therefore get a share
    of its seconds. If joining is expensive, samples thus join in larger groups.
    """

    def __init__(self, new_batch: Callable[[], Any]):
        self._new_batch = new_batch
        self._batches: list[Any] = []
        self._newest: Any = None
        self._was_beginning = False  # in the last round
        self._joining: deque[float] = deque([0.0], maxlen=_LATELY)  # seconds, with first calls
        self._since = 0.0  # seconds of rounds without joining

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    @property
    def may_join(self) -> bool:
        """Return whether new samples may join in the next round."""
        is_time = not len(self) or self._since >= SHARE * min(self._joining)
        return is_time and not self._is_beginning()

    def note_round(self, seconds: float, joined: bool) -> None:
        """Note the seconds of the last round, and whether samples joined in it."""
        if joined:
            self._joining.append(seconds)
            self._since = 0.0
        elif self._was_beginning:
            self._joining[-1] += seconds
        else:
            self._since += seconds

    def _is_beginning(self) -> bool:
        """Return whether first calls of new samples still run beside the rounds of others."""
        return any([batch.is_beginning for batch in self._batches])

    def admit(self, requests: Sequence[Request]) -> list[Request]:
        """Start samples in the newest batch; return the requests that are already finished."""
        done: list[Request] = []
        if requests:
            if self._newest is None or self._newest.is_full:
                self.close(only_empty=True)
                self._newest = self._add()
            self._admit(self._newest, requests, done)
        return done

    def round(self) -> list[Request]:
        """Run one round in each batch; return finished requests, with a result or an error."""
        done: list[Request] = []
        self._was_beginning = self._is_beginning()
        is_only = sum([len(batch) > 0 for batch in self._batches]) == 1
        for batch in list(self._batches):
            try:
                if len(batch):
                    batch.round(done, is_only)
            except Exception as error:
                self._split(batch, error, done)
            else:
                if not len(batch) and batch is not self._newest:
                    self._drop(batch)
        return done

    def close(self, only_empty: bool = False) -> None:
        """Close all batches, or those without samples, when no request waits to join."""
        for batch in list(self._batches):
            if not (only_empty and len(batch)):
                self._drop(batch)

    def _admit(self, batch: Any, requests: Sequence[Request], done: list[Request]) -> None:
        """Start requests in a batch; restart one alone if others may have made it fail."""
        for request in batch.admit(requests, done):
            if len(requests) == 1 and not len(batch):
                done.append(request)
            else:
                request.error = None
                self._admit(self._add(), [request], done)

    def _split(self, batch: Any, error: Exception, done: list[Request]) -> None:
        """Close a batch that failed; restart its samples in two, or fail a single one."""
        requests = self._drop(batch, error)
        if len(requests) == 1:
            requests[0].error = error
            done += requests
            return
        half = len(requests) // 2
        for part in (requests[:half], requests[half:]):
            self._admit(self._add(), part, done)

    def _add(self) -> Any:
        self._batches.append(self._new_batch())
        return self._batches[-1]

    def _drop(self, batch: Any, error: Optional[Exception] = None) -> list[Request]:
        """Close a batch, so that no more samples join it; return the requests that were in it."""
        self._batches.remove(batch)
        if batch is self._newest:
            self._newest = None
        return batch.close(error)
