"""Samples of a compiled program that run together: they join at its first block."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np

from ..api.concurrent import contents_of
from ..branching.program_interpreter import ControlFlowProgram
from ..program.network_program import Program
from .requests import Request

PASSED_OVER = 8  # runs in a row that a waiting sample may miss; beyond that, the batch is full


class ProgramBatch:
    """Run a compiled program on samples that join while others are running.

    Each round runs the first block at which samples wait, so that samples meet where paths merge. A
    stream of new samples would starve the others: no more join when a running sample was passed
    over more than `PASSED_OVER` times."""

    may_stay, is_beginning = True, False

    def __init__(self, program: Union[Program, ControlFlowProgram]):
        self._run = program.running()
        self._requests: list[Optional[Request]] = []  # by the sample's number in the run
        self._passed_over = np.zeros(0, np.int64)  # how many runs in a row, by number of the sample

    def __len__(self) -> int:
        return len(self._run)

    @property
    def is_full(self) -> bool:
        """Return whether new samples need another batch, as one was passed over too often."""
        return bool((self._passed_over > PASSED_OVER).any())

    def admit(self, requests: Sequence[Request], done: list[Request]) -> list[Request]:
        """Let samples join, and append those that are not like the program's example to `done`."""
        try:
            self._join(requests)
        except Exception:
            for request in requests:
                try:
                    self._join([request])
                except Exception as error:
                    request.error = error
                    done.append(request)
        return []

    def _join(self, requests: Sequence[Request]) -> None:
        free = [number for number, request in enumerate(self._requests) if request is None]
        missing = max(0, len(requests) - len(free))
        numbers = [*free, *range(len(self._requests), len(self._requests) + missing)]
        numbers = numbers[: len(requests)]
        self._run.admit(numbers, [request.sample for request in requests])
        self._requests += [None] * missing
        self._passed_over = np.append(self._passed_over, np.zeros(missing, np.int64))
        for number, request in zip(numbers, requests):
            self._requests[number] = request

    def round(self, done: list[Request], is_only: bool) -> None:
        """Run one block, and append finished requests to `done`."""
        finished = self._run.step()
        self._passed_over += [request is not None for request in self._requests]
        self._passed_over[self._run.latest] = 0
        while self._run.at_end:  # in the same round, which tells how long a block takes
            finished += self._run.step(ends_first=True)
        results = contents_of([result for _, result in finished])
        for (number, _), result in zip(finished, results):
            request: Any = self._requests[number]
            request.result, self._requests[number] = result, None
            self._passed_over[number] = 0
            done.append(request)

    def close(self, error: Optional[Exception] = None) -> list[Request]:
        """Return the requests that were in the batch; it is not used any more."""
        return [request for request in self._requests if request is not None]
