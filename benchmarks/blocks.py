"""Measure one batch of a cell: hybridized Gluon against what gluon_edbatch compiles."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd

import gluon_edbatch as edb
from gluon_edbatch.execute.cached.compiled_graph import program_for
from gluon_edbatch.execute.execution_state import ExecutionState
from gluon_edbatch.execute.gradients import Gradients, InputGradients
from gluon_edbatch.execute.native.native_program import native_program
from gluon_edbatch.execute.steps import Step, steps
from gluon_edbatch.mx.custom_function import ADD
from gluon_edbatch.subgraph.ir import Subgraph

from .cells import CELLS, Cell
from .contexts import context
from .machine import machine_info
from .output import aligned, rounded

__all__ = ['BlockSettings', 'CompiledBatch', 'PlainBatch', 'block_table', 'measure_block']

MODES = 'forward', 'both'  # both: forward, and then backward
Row = dict[str, Any]


class BlockSettings(NamedTuple):
    """Settings of a measurement of one cell.

    Attributes
    ----------
    cell : str
        One of `CELLS`.
    fused : bool
        Whether one layer computes all gates, rather than one for each.
    rows : int
        Rows of the batch.
    hidden, embed : int
        H and E.
    reads : str
        What the compiled batch reads lies scattered (``'gather'``) or in order (``'slice'``). For
        plain Gluon it is always in order.
    off : tuple of str
        Compile options that are off.
    repeat : int
        Timed repeats of either side.
    seconds : float
        About how long a repeat takes.
    threads, seed : int
    ctx : str
    """

    cell: str
    fused: bool
    rows: int
    hidden: int = 256
    embed: int = 256
    reads: str = 'gather'
    off: Sequence[str] = ()
    repeat: int = 7
    seconds: float = 0.05
    threads: int = 1
    seed: int = 0
    ctx: str = 'cpu'

    def build(self) -> Cell:
        """Return a new, initialised cell."""
        mx.random.seed(self.seed)
        cell = CELLS[self.cell](self.hidden, self.embed, self.fused)
        cell.initialize(mx.init.Xavier(), ctx=context(self.ctx))
        return cell

    def arguments(self, cell: Cell) -> list[np.ndarray]:
        """Return random arguments for a batch."""
        random = np.random.RandomState(self.seed)
        return [
            random.uniform(-1, 1, size=(self.rows,) + shape).astype(np.float32)
            for shape in cell.row_shapes
        ]


class _Time(NamedTuple):
    """The time of one call: on the clock, and of processors over all threads."""

    seconds: float
    cpu_seconds: float


class PlainBatch:
    """Call a hybridized cell with the rows of a batch."""

    def __init__(self, settings: BlockSettings, cell: Cell):
        cell.hybridize()
        self._cell = cell
        self._arguments = [
            mx.nd.array(array, ctx=context(settings.ctx)) for array in settings.arguments(cell)
        ]
        for array in self._arguments:
            array.attach_grad()
        self._heads = [mx.nd.ones_like(output) for output in self.forward()]
        symbols = cell(*[mx.sym.var(f'x{i}') for i in range(len(self._arguments))])
        self.operators = len(Subgraph(mx.sym.Group(_listed(symbols))).operators)

    def forward(self) -> list[mx.nd.NDArray]:
        """Run the batch without autograd."""
        return _listed(self._cell(*self._arguments))

    def both(self) -> None:
        """Run the batch under autograd, with gradients of parameters and arguments."""
        with autograd.record():
            outputs = self.forward()
        autograd.backward(outputs, self._heads)


class CompiledBatch:
    """Execute one batch of as many calls in a batching scope.

    Each argument is computed by a batch before, in the order in which the calls read it or, to be
    gathered, in another.

    Parameters
    ----------
    settings : BlockSettings
    cell : Cell
        A cell that must not change while this object is used.
    training : bool
        Whether `both` will be called, rather than `forward`.
    """

    def __init__(self, settings: BlockSettings, cell: Cell, training: bool):
        order = np.arange(settings.rows)
        if settings.reads == 'gather':
            order = np.random.RandomState(settings.seed).permutation(settings.rows)
        options = edb.CompileOptions().but(**dict.fromkeys(settings.off, False))
        with (
            autograd.record() if training else autograd.pause(),
            edb.batching('agenda', context(settings.ctx), options) as scope,
        ):
            columns = [
                self._computed(array, position, order)
                for position, array in enumerate(settings.arguments(cell))
            ]
            edb.forward([cell(*arguments) for arguments in zip(*columns)])
            recording = scope._recording
            plan = recording.evaluator.counts[-1].plan
            self._state = ExecutionState(recording, plan, None)  # only Functions look at the calls
        for step in steps(plan):
            step.run(self._state)
        ((number, self._batch),) = [
            (number, batch)
            for number, batch in enumerate(plan.batches)
            if batch.node_type.graph.parameters
        ]
        for array in self._state.gradients:
            if array is not None:
                array[:] = 1
        weights = self._state.weights.arrays
        self.gradients = [mx.nd.zeros_like(array) for array in weights]
        self._requests = [ADD] * len(weights)
        self.gathers = sum(read.gather for read in self._batch.reads)
        self.native = native_program(self._batch.node_type) is not None
        self._step = Step(number, number + 1, self.native)
        node_type, reads = (
            self._batch.node_type,
            tuple('gather' if read.gather else 'slice' for read in self._batch.reads),
        )
        self.operators = (
            1
            if self.native
            else program_for(node_type, reads, settings.rows <= node_type.fused_up_to).operators
        )

    @staticmethod
    def _computed(array: np.ndarray, position: int, order: np.ndarray) -> list[Any]:
        """Compute the rows of an argument one by one in another order, separately from other
        arguments."""
        values = {
            row: edb.nd.clip(array[row : row + 1], -2 - position, 2) for row in order.tolist()
        }
        return [values[row] for row in range(len(array))]

    def forward(self) -> list[mx.nd.NDArray]:
        """Run the batch; return its results."""
        self._step.run(self._state)
        return [
            self._state.arenas[write.arena]._slice(write.begin, write.end)
            for write in self._batch.writes
        ]

    def both(self) -> None:
        """Run the batch and differentiate it."""
        self._step.run(self._state)
        inputs = InputGradients(self.gradients, self._requests)
        places = range(len(self.gradients))
        gradients = Gradients(self._state.gradients, (), inputs, places)
        self._state.weights.begin()
        self._state.tapes.pop().backward(gradients)
        self._state.weights.deliver(gradients)


def measure_block(settings: BlockSettings) -> list[Row]:
    """Return the rows of a cell and size, forward and with the backward pass."""
    rows = []
    for mode in MODES:
        plain = PlainBatch(settings, settings.build())
        compiled = CompiledBatch(settings, settings.build(), training=mode == 'both')
        pairs = _in_turn([getattr(side, mode) for side in (plain, compiled)], settings)
        rows.append(
            {
                'cell': settings.cell,
                'gates': 'fused' if settings.fused else 'apart',
                'mode': mode,
                'rows': settings.rows,
                'hidden': settings.hidden,
                'embed': settings.embed,
                'reads': settings.reads,
                'off': list(settings.off),
                **_times(pairs, '', 0),
                **_times(pairs, 'cpu_', 1),
                'plain_operators': plain.operators,
                'operators': compiled.operators,
                'gathers': compiled.gathers,
                'native': compiled.native,
                'threads': settings.threads,
                'repeat': settings.repeat,
                'seed': settings.seed,
                **machine_info(),
            }
        )
    return rows


def _in_turn(sides: Sequence[Callable[[], Any]], settings: BlockSettings) -> list[list[_Time]]:
    """Return times of a call of each side, repeat by repeat."""
    times = [max(1, int(settings.seconds / _time(side, 3).seconds)) for side in sides]
    return [
        [_time(side, number) for side, number in zip(sides, times)] for _ in range(settings.repeat)
    ]


def _time(side: Callable[[], Any], times: int) -> _Time:
    side()
    mx.nd.waitall()
    begin = _Time(time.perf_counter(), time.process_time())
    for _ in range(times):
        side()
    mx.nd.waitall()
    return _Time(
        (time.perf_counter() - begin.seconds) / times,
        (time.process_time() - begin.cpu_seconds) / times,
    )


def _times(pairs: list[list[_Time]], prefix: str, which: int) -> dict[str, float]:
    """Return fields of a row: medians of both sides, and of their ratio."""
    plain, compiled = ([times[which] for times in side] for side in zip(*pairs))
    return {
        f'plain_{prefix}us': rounded(1e6 * median(plain)),
        f'compiled_{prefix}us': rounded(1e6 * median(compiled)),
        f'{prefix}speedup': rounded(median(a / b for a, b in zip(plain, compiled))),
    }


def _listed(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def block_table(rows: Sequence[Row]) -> str:
    """Return rows of one cell as a table: µs a call, with forward and both side by side."""
    row = rows[0]
    head = (
        f'{row["cell"]}, gates {row["gates"]}, hidden {row["hidden"]}, embedding '
        f'{row["embed"]}, {row["threads"]} thread(s) on {row["cpus"]} x {row["cpu"]}'
    )
    cells = [
        ['rows']
        + [
            f'{mode} {what}'
            for mode in MODES
            for what in ('plain', 'compiled', 'speedup', 'cpu speedup')
        ]
        + ['operators plain', 'compiled', 'gathers']
    ]
    for forward, both in zip(rows[::2], rows[1::2]):
        cells.append(
            [str(forward['rows'])]
            + [
                text
                for one in (forward, both)
                for text in (
                    f'{one["plain_us"]:.0f}',
                    f'{one["compiled_us"]:.0f}',
                    f'{one["speedup"]:.2f}',
                    f'{one["cpu_speedup"]:.2f}',
                )
            ]
            + [str(both[name]) for name in ('plain_operators', 'operators', 'gathers')]
        )
    return '\n'.join([head] + aligned(cells))
