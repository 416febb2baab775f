"""Runs a program for one sample: nothing regroups, and its numbers are Python's own.

What `machine` does for many takes several calls of NumPy a number. Here a branch costs what it
costs in the user's own code, or less.
"""

import operator
from typing import Any, Callable

import numpy as np

from ..errors import StepsError
from .calculate import NUMBERS, ORDERED, are_near, calculate, have_rivals
from .counts import Counts, too_many
from .graph import (
    Calculate,
    Choose,
    Finish,
    GiveTensor,
    Goto,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
)
from .host import Host

# What Python computes as `calculate` does, of numbers that are `_plain`.
_QUICK: dict[str, Callable] = {
    'add': operator.add,
    'sub': operator.sub,
    'mul': operator.mul,
    'lt': operator.lt,
    'le': operator.le,
    'gt': operator.gt,
    'ge': operator.ge,
    'eq': operator.eq,
    'ne': operator.ne,
}
_EXACT = 2**53  # smaller integers are the same as float64
_PYTHON: dict[str, Callable] = {'float': float, 'int': int, 'bool': bool}


def run_alone(
    graph: ProgramGraph, host: Host, values: list[Any], max_steps: int, counts: Counts
) -> tuple[Finish, list[Any]]:
    """Where a sample finishes, and what comes out: arrays of the host, and numbers of Python.

    Raises
    ------
    StepsError
        If it runs more than `max_steps` blocks.
    """
    counts.samples += 1
    number, blocks = 0, graph.blocks
    for _ in range(max_steps):
        block = blocks[number]
        counts.runs += 1
        made = dict(enumerate(values))
        _compute(block, made, host, counts)
        end: Any = block.end
        if type(end) is Finish:
            counts.taken[number][0] += 1
            return end, [_of(made, place) for place in end.values]
        way = 0 if type(end) is Goto or made[end.condition] else 1
        counts.taken[number][way] += 1
        to = (end.then, end.other)[way] if type(end) is Choose else end
        values = _given(blocks[to.block], to, made)
        number = to.block
    raise StepsError(too_many(max_steps, blocks[number].name))


def _compute(block: ProgramBlock, made: dict[int, Any], host: Host, counts: Counts) -> None:
    step: Any
    for step in block.steps:
        kind = type(step)
        if kind is RunNetwork:
            results = host.run(step, [made[place] for place in step.inputs], 1)
            made.update(zip(step.outputs, results))
        elif kind is ReadNumber:
            made[step.output] = host.read(made[step.input]).astype(NUMBERS[step.kind]).item()
            for place in step.rivals:
                if have_rivals(host.read(made[place]).reshape(1, -1))[0]:
                    counts.near.append((step.line, 0))
        elif kind is Calculate:
            made[step.output] = _calculated(step, made, counts)
        elif kind is GiveTensor:
            made[step.output] = host.give(np.array([made[step.input]]), step.dtype)
        else:
            made[step.output] = host.fill(step.constant, 1)


def _calculated(step: Calculate, made: dict[int, Any], counts: Counts) -> Any:
    operands = [_of(made, place) for place in step.operands]
    if step.op in ORDERED and are_near(*operands):
        counts.near.append((step.line, 0))
    quick = _QUICK.get(step.op)
    if quick is not None and all(map(_plain, operands)):
        found = quick(*operands)
        if type(found) is not int or -_EXACT < found < _EXACT:
            return found
    arrays = [
        operand if isinstance(place, tuple) else np.array([operand])
        for place, operand in zip(step.operands, operands)
    ]
    return calculate(step, arrays, 1).item()


def _plain(number: Any) -> bool:
    """Whether it is a float and not NaN, or an integer of few bits."""
    kind = type(number)
    return number == number if kind is float else kind is int and -_EXACT < number < _EXACT


def _given(block: ProgramBlock, to: Goto, made: dict[int, Any]) -> list[Any]:
    """What a block takes; a constant is the number that the block knows it as."""
    return [
        _PYTHON[spec.kind](place[0]) if type(place) is tuple else made[place]  # type: ignore
        for place, spec in zip(to.values, block.takes)
    ]


def _of(values: dict[int, Any], place: Any) -> Any:
    return place[0] if isinstance(place, tuple) else values[place]
