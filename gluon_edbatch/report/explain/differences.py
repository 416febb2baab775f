"""Find what distinguishes the types of calls of one block, or of one operator."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
from mxnet import gluon

from gluon_edbatch_core.short_repr import brief

from ...record.packed_types import is_packed
from ...subgraph.node_type import Argument, Kind, Mode, NodeType
from ...subgraph.trace import argument_names
from .explanation import Cause


class Difference(NamedTuple):
    """A property in which calls differ."""

    cause: Cause
    what: str  # an argument, attribute, …
    values: tuple[Any, ...]  # the most frequent first
    calls: tuple[int, ...]  # how many calls have each value


class Word(str):
    """A value that is shown in a text without quotes."""

    __repr__ = str.__str__


class _Shown(NamedTuple):
    """A value that is shown as a text in its place."""

    value: Any
    text: str

    def __repr__(self) -> str:
        return self.text


ARRAY = Word('an array')
DATA = Word('data')
COLUMN = Word('any other number')  # see decision 0024
PARAMETERS, NUMBER_OF_ARRAYS = 'its parameters', 'the number of arrays'
_PLAIN = (bool, int, float, str, type(None))


def differences(
    types: Sequence[NodeType], block: Optional[gluon.Block], calls: Sequence[int]
) -> list[Difference]:
    """Return in what some types of one block or operator differ; `calls` has the calls of each."""
    seen: dict[tuple[Cause, str], Counter[tuple]] = {}
    for node_type, count in zip(types, calls):
        for cause, what, value in _aspects(node_type, block):
            # The class counts, too: 1 == True.
            seen.setdefault((cause, what), Counter())[type(value), value] += count
    return [
        Difference(
            cause,
            what,
            tuple(value for (_, value), _ in counts.most_common()),
            tuple(count for _, count in counts.most_common()),
        )
        for (cause, what), counts in seen.items()
        if len(counts) > 1
    ]


def value_text(cause: Cause, value: Any) -> str:
    """Return a value of a difference as text."""
    if cause is Cause.SHAPE:
        return _shape_text(value)
    if cause is Cause.MODE:
        states = [name for name, on in zip(Mode._fields, value) if on]
        return ' and '.join(states) or 'off'
    if cause is Cause.LENGTHS:
        return 'any' if value is None else ' and '.join(map(str, value))
    if cause in (Cause.DTYPE, Cause.CONTEXT):
        return str(value)
    return repr(value) if isinstance(value, (Word, _Shown)) else brief(value)


def _aspects(node_type: NodeType, block: Optional[gluon.Block]) -> Iterator[tuple[Cause, str, Any]]:
    """Yield all that makes a type: (cause of a difference, what, value)."""
    if block is None:
        yield from _of_operator(node_type)
    else:
        yield from _of_block(node_type, block)
    yield Cause.MODE, "autograd's mode", node_type.mode
    if node_type.ragged:
        yield Cause.LENGTHS, 'the number of ragged values', node_type.lengths


def _of_operator(node_type: NodeType) -> Iterator[tuple[Cause, str, Any]]:
    _, attributes, shared = node_type.made_with
    arguments, weights = iter(node_type.arguments), iter(node_type.parameters)
    count = len(node_type.arguments) - len(node_type.graph.constants) + len(shared)
    yield Cause.ARGUMENT, NUMBER_OF_ARRAYS, count
    for position in range(count):
        name = f'argument {position + 1}'
        if position in shared:
            array = next(weights).data(node_type.ctx)
            text = f'a weight of shape {_shape_text(array.shape)}'
            yield Cause.WEIGHT, name, _Shown(id(array), text)
        else:
            yield Cause.WEIGHT, name, DATA
            yield from _of_array(name, next(arguments), node_type)
    for pair in attributes:
        if set(map(type, pair)) == {str}:  # none of what fused operators are
            name, value = pair
            yield Cause.ARGUMENT, name, COLUMN if value == 'data' else Word(value)


def _of_block(node_type: NodeType, block: gluon.Block) -> Iterator[tuple[Cause, str, Any]]:
    template, mark = node_type.made_with
    arguments = iter(node_type.arguments)
    names = argument_names(block, len(template))
    yield Cause.ARGUMENT, 'the number of arguments', len(template)
    for name, part in zip(names, template):
        for what, value in _parts(part, name):
            yield Cause.ARGUMENT, what, value
            argument = next(arguments, None) if value is ARRAY else None
            if argument is not None:  # a part of the calls may not read it
                yield from _of_array(what, argument, node_type)
    yield (
        Cause.DTYPE,
        PARAMETERS,
        Word(', '.join(dict.fromkeys(dtype.name for dtype in node_type.parameter_dtypes))),
    )
    for name, frozen in mark:
        plain = type(frozen) is tuple and frozen[0] in _PLAIN
        yield Cause.ATTRIBUTE, name, frozen[1] if plain else _Shown(frozen, 'something else')


def _of_array(
    name: str, argument: Argument, node_type: NodeType
) -> Iterator[tuple[Cause, str, Any]]:
    shape, dtype, ctx, _ = argument.arena
    by_position = len(node_type.arguments) == 1 and is_packed(node_type)
    axis: tuple[str, ...] = ()
    if argument.kind is Kind.RAGGED:
        axis = ('k',)
    elif argument.kind is Kind.PACKED or by_position:
        axis = ('length',)
    yield Cause.SHAPE, name, (argument.rows if node_type.whole else 'n', *axis, *shape)
    yield Cause.DTYPE, name, np.dtype(dtype).name
    yield Cause.CONTEXT, name, f'on {ctx}'


def _parts(template: tuple, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the arrays, constants and containers in an argument (see `structure.flatten`)."""
    kind = template[0]
    if kind == 'leaf':
        yield name, ARRAY
    elif kind == 'static':
        yield name, template[2]
    else:
        keys, items = (
            (template[1], template[3:])
            if issubclass(kind, dict)
            else (range(len(template) - 1), template[1:])
        )
        yield name, Word(f'a {kind.__name__} of {len(items)}')
        for key, item in zip(keys, items):
            yield from _parts(item, f'{name}[{key!r}]')


def _shape_text(shape: tuple) -> str:
    return f'({", ".join(map(str, shape))}{"," * (len(shape) == 1)})'
