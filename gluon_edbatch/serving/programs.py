"""Continuous batching for compiled programs: samples join at every block, and leave when done."""

from collections.abc import Sequence
from time import monotonic
from typing import Any, Optional, Union

import numpy as np

from ..api.concurrent import contents_of
from ..branching.program_interpreter import ControlFlowProgram, ProgramRun
from ..program.network_program import Program
from .requests import Request

PASSED_OVER = 8  # runs in a row that a waiting sample may miss; beyond that, none joins


class ProgramRounds:
    """Run a compiled program on samples that join while others are running.

    Each round runs the first block at which samples wait, so that samples meet where paths merge. A
    stream of new samples would starve the others: none joins while a running sample was passed over
    more than `PASSED_OVER` times."""

    is_beginning = False  # first calls never run beside the rounds of others

    def __init__(self, program: Union[Program, ControlFlowProgram]):
        self._program = program
        self._running: ProgramRun = program.running()
        self._waiting: list[Request] = []
        self._requests: list[Optional[Request]] = []  # by the sample's number in the run
        self._free: list[int] = []
        self._passed_over = np.zeros(0, np.int64)  # how many runs in a row, by number of the sample

    def __len__(self) -> int:
        return len(self._requests) - len(self._free) + len(self._waiting)

    def admit(self, requests: Sequence[Request]) -> list[Request]:
        """Queue requests to join in a later round; return an empty list, as none is done yet."""
        self._waiting += requests
        return []

    def round(self) -> list[Request]:
        """Run one block; return the requests that finish, with a result or an error."""
        done: list[Request] = []
        if self._waiting and not (self._passed_over > PASSED_OVER).any():
            self._let_join(done)
        if not len(self._running):
            return done
        try:
            finished = self._running.step()
            self._note_run()
            while self._running.at_end:  # in the same round, which tells how long a block takes
                finished += self._running.step(ends_first=True)
        except Exception:  # it may be one sample's fault
            self._begin_again(done)
            return done
        for number, result in finished:
            done.append(self._leave(number, result))
        return done

    def _let_join(self, done: list[Request]) -> None:
        now = monotonic()
        joining: list[Request] = []
        for request in self._waiting:
            (done if request.is_given_up(now) else joining).append(request)
        self._waiting = []
        try:
            self._join(joining)
        except Exception:
            for request in joining:
                try:
                    self._join([request])
                except Exception as error:
                    request.error = error
                    done.append(request)

    def _join(self, requests: Sequence[Request]) -> None:
        if not requests:
            return
        missing = len(requests) - len(self._free)
        if missing > 0:
            first = len(self._requests)
            self._free += range(first, first + missing)
            self._requests += [None] * missing
            self._passed_over = np.append(self._passed_over, np.zeros(missing, np.int64))
        numbers = self._free[-len(requests) :]
        self._running.admit(numbers, [request.sample for request in requests])
        del self._free[-len(requests) :]
        for number, request in zip(numbers, requests):
            self._requests[number] = request

    def _note_run(self) -> None:
        self._passed_over += 1
        self._passed_over[self._running.latest] = 0
        self._passed_over[self._free] = 0

    def _leave(self, number: int, result: Any) -> Request:
        request: Any = self._requests[number]
        self._requests[number] = None
        self._free.append(number)
        self._passed_over[number] = 0
        (request.result,) = contents_of([result])
        return request

    def _begin_again(self, done: list[Request]) -> None:
        """Run all samples again in halves, until a failing one is alone with its error."""
        requests = [request for request in self._requests if request is not None]
        self.close()
        parts = [requests]
        while parts:
            part = parts.pop()
            try:
                results = self._program([request.sample for request in part])
            except Exception as error:
                if len(part) > 1:
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
                    continue
                part[0].error, results = error, [None]
            for request, result in zip(part, results):
                (request.result,) = contents_of([result])
            done += part

    def rest(self) -> None:
        """Do nothing: a program has no scope to leave."""

    def close(self) -> None:
        """Drop all running samples, and start an empty run."""
        self._running = self._program.running()
        self._requests, self._free, self._passed_over = [], [], np.zeros(0, np.int64)
