"""Measure several systems in turn, each in its own process.

Systems take turns (A B A B …), so that a slower machine affects all of them equally. Each has its
own process, so that its memory can be measured, and thread pools of two libraries do not meet.
"""

import multiprocessing
import traceback
from collections.abc import Sequence
from typing import Any, Union

from tqdm import tqdm

from .settings import Settings

__all__ = ['MeasurementError', 'measure_in_turn']


class MeasurementError(Exception):
    """A system could not be measured; the message says why."""


Answer = Union[dict[str, Any], MeasurementError, float, None]


class _Here:
    """A measurement in this process, visible to a profiler or debugger."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._measurement = None

    def ask(self, question: str, *arguments) -> Any:
        """Call a method of the measurement."""
        if self._measurement is None:
            try:  # what is missing on this machine, or wrong in the settings or the data
                from .measure import Measurement

                self._measurement = Measurement(self.settings)
            except (ImportError, OSError, ValueError) as error:
                raise MeasurementError(f'{self.settings.system}: {error}') from error
        return getattr(self._measurement, question)(*arguments)

    def close(self) -> None:
        """Finish all work: MXNet's threads may crash when the interpreter ends."""
        if self._measurement is not None:
            self._measurement.system.wait()
            import mxnet

            mxnet.nd.waitall()


class _Elsewhere:
    """A measurement in a separate process."""

    def __init__(self, settings: Settings):
        self.settings = settings
        fresh = multiprocessing.get_context('spawn')  # MXNet does not survive a fork
        self._pipe, there = fresh.Pipe()
        self._process = fresh.Process(target=_serve, args=(there, settings), daemon=True)
        self._process.start()
        there.close()

    def ask(self, question: str, *arguments) -> Any:
        """Call a method of the measurement."""
        try:
            self._pipe.send((question, arguments))
            answer, value = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            self._process.join()
            raise MeasurementError(
                f'{self.settings.system}: its process ended with status {self._process.exitcode}'
            ) from None
        if answer == 'error':
            raise MeasurementError(value)
        return value

    def close(self) -> None:
        """End the measurement's process."""
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()


def _serve(pipe, settings: Settings) -> None:
    """Answer questions until the other end closes."""
    here = _Here(settings)
    try:
        while True:
            question, arguments = pipe.recv()
            try:
                answer = 'value', here.ask(question, *arguments)
            except MeasurementError as error:
                answer = 'error', str(error)
            except Exception:
                answer = 'error', f'{settings.system}:\n{traceback.format_exc()}'
            pipe.send(answer)
    except (EOFError, KeyboardInterrupt):
        pass
    here.close()


def measure_in_turn(cells: Sequence[Settings], apart: bool) -> list[tuple[Settings, Answer]]:
    """Measure settings that differ in nothing but the system, in turn.

    Parameters
    ----------
    cells : sequence of Settings
    apart : bool
        Whether each system has its own process; False is for a single system.

    Returns
    -------
    list of (Settings, dict or MeasurementError)
        The row of each system, or why there is none.
    """
    workers = [(_Elsewhere if apart else _Here)(settings) for settings in cells]
    answers: dict[str, Answer] = {}
    rounds = 1 + cells[0].repeat + 1
    title = '{0.workload} {0.mode} {0.batch_size}'.format(cells[0])
    try:
        with tqdm(total=rounds * len(cells), desc=title, leave=False, disable=None) as bar:
            for number in range(rounds):
                for worker in workers:
                    name = worker.settings.system
                    bar.set_postfix_str(name)
                    if not isinstance(answers.get(name), MeasurementError):
                        answers[name] = _ask(worker, number, rounds)
                    bar.update()
        return [(settings, answers[settings.system]) for settings in cells]
    finally:
        for worker in workers:
            worker.close()


def _ask(worker, number: int, rounds: int) -> Answer:
    """Warm up first, return the row last, and run repeats in between."""
    try:
        if number == 0:
            return worker.ask('warm_up')
        if number < rounds - 1:
            return worker.ask('repeat', number - 1)
        return worker.ask('row')
    except MeasurementError as error:
        return error
