"""Calls of operators, drawn by a seed: each is the same whatever others are drawn."""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from .registry import Attribute, Operator

FLOATS = ('float32',) * 11 + ('float64',) * 7 + ('float16', 'int32', 'uint8')
EACH, RANKS = 8, 4  # of so many cases, the last has no maker and float32: 1, 2, … axes in turn
_DTYPES = ('float16', 'float32', 'float64', 'int32', 'int64', 'int8', 'uint8')


class Input(NamedTuple):
    """An array of a call.

    Attributes
    ----------
    shape : tuple of int
    sort : str
        What is in it: ``real``, ``positive``, ``unit`` (0 to 1), ``index`` or ``length`` (below or
        up to `top`), ``spd`` (a positive definite matrix), ``lower`` (a triangular one), ``state``
        (what the operator writes to: it has no gradient), ``large``, ``half``.
    shared : bool
        Whether all calls have the same.
    dtype : str
        Empty: that of the case.
    top : int
    """

    shape: tuple[int, ...]
    sort: str = 'real'
    shared: bool = False
    dtype: str = ''
    top: int = 0


class Case(NamedTuple):
    """Some calls of an operator, and how they are made.

    Attributes
    ----------
    op : str
    index, seed : int
    attrs : dict of str to str
    inputs : list of Input
    dtype : str
    recorded, training, native, block, few : bool
        Whether gradients are compared; whether Dropout and the like are on; whether native
        operators are used; whether the operator is called in a block; and whether the loss uses
        some of the results only.
    longer : bool
        Whether every other call has one row more.
    code : str
        Of NumPy mode: the call as a user writes it, ``a``, ``b``, … being the arrays.
    calls : int
        How many there are.
    numpy_numbers : bool
        Whether attributes are NumPy's numbers, and tuples of them, instead of text.
    """

    op: str
    index: int
    seed: int
    attrs: dict[str, str]
    inputs: list[Input]
    dtype: str
    recorded: bool
    training: bool
    native: bool
    block: bool
    few: bool
    longer: bool
    code: str = ''
    calls: int = 4
    numpy_numbers: bool = False

    @property
    def name(self) -> str:
        """The case's name, as `--only` takes it."""
        return f'{self.op}#{self.index}'

    def __str__(self) -> str:
        attrs = ', '.join(f'{key}={value}' for key, value in self.attrs.items())
        arrays = ', '.join(
            f'{"shared " * each.shared}{each.dtype or self.dtype}{each.shape}'
            for each in self.inputs
        )
        flags = ' '.join(
            name
            for name in ('recorded', 'training', 'native', 'block', 'few', 'longer')
            if getattr(self, name)
        )
        return f'{self.code or f"{self.op}({attrs})"} of {arrays}; {flags}'


class Draw:
    """What makers draw from.

    Attributes
    ----------
    rank : int
        Of all shapes; 0 if it is drawn.
    attrs : dict
        What they set.
    dtypes : sequence of str
        Of the arrays; they leave out what MXNet has no such operator for.
    longer : bool
        Whether some calls may have one row more; not where arrays have different rows.
    code : str
        What is written in NumPy mode.
    block : bool
        Whether that may be in a block.
    """

    def __init__(self, seed: int, rank: int = 0):
        self.rank = rank
        self.random = np.random.RandomState(seed)
        self.attrs: dict[str, Any] = {}
        self.dtypes: Sequence[str] = FLOATS
        self.longer = True
        self.code = ''
        self.block = True

    def pick(self, choices: Sequence[Any]) -> Any:
        """Draw one of some items."""
        return choices[self.random.randint(len(choices))]

    def number(self, low: int, high: int) -> int:
        """Draw an integer, both ends included."""
        return int(self.random.randint(low, high + 1))

    def flag(self, chance: float = 0.5) -> bool:
        """Draw a bool."""
        return bool(self.random.uniform() < chance)

    def shape(self, least: int = 1, most: int = 4, longest: int = 3) -> tuple[int, ...]:
        """Return the shape of an array with so many axes."""
        least, most = self.rank or least, self.rank or most
        return tuple(self.number(1, longest) for _ in range(self.number(least, most)))

    def maybe(self, name: str, *choices: Any) -> Any:
        """Leave an attribute out or set it to one of these."""
        if self.flag(0.7):
            self.attrs[name] = self.pick(choices)
        return self.attrs.get(name)

    def axis(self, rank: int, none: bool = False) -> Any:
        """One of an array's, often from behind."""
        return self.pick(list(range(-rank, rank)) + [None] * (2 * none))

    def axes(self, rank: int, none: bool = True) -> Any:
        """Draw one axis, several, or None."""
        if none and self.flag(0.15):
            return None
        axes = self.random.permutation(rank)[: self.number(1, rank)].tolist()
        axes = [axis - rank * self.flag(0.4) for axis in axes]
        return axes[0] if len(axes) == 1 and self.flag() else tuple(axes)


def make_cases(operators: Sequence[Operator], seed: int, count: int) -> Iterator[Case]:
    """`count` cases, of each operator in turn that users call."""
    called = [operator for operator in operators if not operator.why_not]
    for number in range(count if called else 0):
        yield make_case(called[number % len(called)], seed, number // len(called))


def make_case(operator: Operator, seed: int, index: int) -> Case:
    """The case of an operator with this number."""
    from .makers import MAKERS
    from .numpy_calls import write

    own = zlib.crc32(f'{seed}/{operator.name}/{index}'.encode())
    turn, at_each_rank = divmod(index, EACH)
    at_each_rank = at_each_rank == EACH - 1 and not operator.written
    draw = Draw(own, 1 + turn % RANKS if at_each_rank else 0)
    maker = MAKERS.get(operator.name)
    if operator.written:
        inputs = write(draw, operator)
    elif at_each_rank or maker is None or draw.flag(0.1):
        draw.dtypes = FLOATS[:1] if at_each_rank else draw.dtypes
        inputs = _any_inputs(operator, draw)
        rank = len(inputs[0].shape) if inputs else 2
        _any_attributes(operator, draw, rank)
    else:
        inputs = maker(draw)
        _any_attributes(operator, draw, len(inputs[0].shape) if inputs else 2, True)
    attrs = {key: _text(value) for key, value in draw.attrs.items()}
    recorded = draw.flag(0.75)
    return Case(
        operator.name,
        index,
        own,
        attrs,
        inputs,
        draw.pick(draw.dtypes),
        recorded,
        draw.flag(0.3),
        draw.flag(),
        draw.flag(0.3) and draw.block,
        draw.flag(0.3),
        draw.flag(0.15) and draw.longer,
        draw.code,
    )


def _text(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, list) else str(value)


def _any_inputs(operator: Operator, draw: Draw) -> list[Input]:
    """Arrays of one shape, or such as may be broadcast to it."""
    count = len(operator.inputs)
    if operator.count:
        count = draw.number(1, 3)
        draw.attrs[operator.count] = count
    shape = draw.shape()
    alike = draw.flag(0.6)
    sort = draw.pick(['real', 'real', 'real', 'positive', 'unit'])
    if operator.name.startswith(('_sample_', '_random_')):
        sort = 'positive'
    names = operator.inputs if len(operator.inputs) == count else ('',) * count
    return [
        Input(
            shape
            if alike or not position
            else tuple(1 if draw.flag(0.3) else length for length in shape),
            'index' if _WHICH.search(name) else sort,
            bool(position) and draw.flag(0.25),
            top=3,
        )
        for position, name in enumerate(names)
    ]


# --- attributes, by their descriptions -----------------------------------------------------------


def _any_attributes(operator: Operator, draw: Draw, rank: int, few: bool = False) -> None:
    """Return required attributes and some optional ones; `few` if a maker has set what matters."""
    for attribute in operator.attributes:
        if attribute.name in draw.attrs or attribute.name in _LEFT_ALONE or few:
            continue
        if attribute.required or draw.flag(0.4):
            value = _value(attribute, draw, rank)
            if value is not _NOTHING:
                draw.attrs[attribute.name] = value


_LEFT_ALONE = (
    'ctx',
    'workspace',
    'cudnn_tune',
    'cudnn_off',
    'num_args',
    'name',
    '__profiler_scope__',
)
_NOTHING = object()
_OF_NOISE = ('lam', 'alpha', 'beta', 'scale', 'sigma', 'k', 'p')
_WHICH = re.compile('ind|label|length')  # names of inputs that have no gradient


def _value(attribute: Attribute, draw: Draw, rank: int) -> Any:
    name, kind = attribute
    optional = 'None' in kind
    if kind.startswith('{'):
        choices = [choice.strip(' \'"') for choice in kind[1 : kind.index('}')].split(',')]
        # MXNet's own Python functions ask NumPy for a dtype, which knows no bfloat16.
        return draw.pick([choice for choice in choices if choice != 'bfloat16'])
    if optional and draw.flag(0.3):
        return None
    if kind.startswith('boolean'):
        return draw.flag()
    if re.match(r'int|long', kind):
        return (
            draw.axis(rank)
            if name in ('axis', 'dim', 'dim1', 'dim2', 'axis1', 'axis2')
            else draw.number(0 if draw.flag(0.2) else 1, 3)
        )
    if kind.startswith('Shape') or 'tuple of' in kind:
        return (
            draw.axes(rank, optional)
            if name in ('axis', 'axes')
            else tuple(draw.number(1, 3) for _ in range(draw.number(1, rank)))
        )
    if name in _OF_NOISE:  # some draw for ever if they are negative
        return draw.pick([0.3, 0.5, 1.0])
    if re.match(r'float|double|real', kind):
        return draw.pick([0.5, 1.0, 0.3, -0.7, 2.0])
    if name == 'dtype':
        return draw.pick(_DTYPES)
    return _NOTHING


def find(operators: dict[str, Operator], seed: int, name: str) -> Optional[Case]:
    """Return the case that a `Case.name` names."""
    op, _, index = name.rpartition('#')
    return make_case(operators[op], seed, int(index)) if op in operators else None
