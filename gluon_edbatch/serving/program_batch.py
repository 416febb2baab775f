"""Samples of a compiled program that run together: they join at its first block."""

from collections import Counter
from collections.abc import Sequence
from itertools import count, filterfalse, islice
from typing import Optional, Union

from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.serving.requests import Request

from ..api.concurrent import contents_of
from ..program.network_program import Program

PASSED_OVER = 8  # runs in a row that a waiting sample may miss; beyond that, the batch is full


class ProgramBatch:
    """Run a compiled program on samples that join while others are running.

    Each round runs the first block at which samples wait, so that samples meet where paths merge. A
    stream of new samples would starve the others: no more join when a running sample was passed
    over more than `PASSED_OVER` times."""

    is_beginning = False

    def __init__(self, program: Union[Program, ControlFlowProgram]):
        self._run = program.running()
        self._requests: dict[int, Request] = {}  # by the sample's number in the run
        self._passed_over: Counter[int] = Counter()  # how many runs in a row, by number

    def __len__(self) -> int:
        return len(self._run)

    @property
    def is_full(self) -> bool:
        """Return whether new samples need another batch, as one was passed over too often."""
        return max(self._passed_over.values(), default=0) > PASSED_OVER

    def admit(self, requests: Sequence[Request], done: list[Request]) -> list[Request]:
        """Let samples join, and append those that are not like the program's example to `done`."""
        free = filterfalse(self._requests.__contains__, count())
        numbers = list(islice(free, len(requests)))
        try:
            self._run.admit(numbers, [request.sample for request in requests])
            self._requests.update(zip(numbers, requests))
        except Exception as error:
            if len(requests) == 1:
                requests[0].error = error
                done += requests
            else:
                for request in requests:
                    self.admit([request], done)
        return []

    def round(self, done: list[Request], is_only: bool) -> None:
        """Run one block, and append finished requests to `done`."""
        finished = self._run.step()
        self._passed_over.update(self._requests.keys())
        for number in self._run.latest.tolist():
            del self._passed_over[number]
        while self._run.at_end:  # in the same round, which tells how long a block takes
            finished += self._run.step(ends_first=True)
        results = contents_of([result for _, result in finished])
        for (number, _), result in zip(finished, results):
            request = self._requests.pop(number)
            request.result = result
            del self._passed_over[number]
            done.append(request)

    def close(self, error: Optional[Exception] = None) -> list[Request]:
        """Return the requests that were in the batch; it is not used any more."""
        return list(self._requests.values())
