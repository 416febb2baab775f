"""What values and makers of arrays can do without MXNet, under MXNet's names. Needs NumPy only.

One table for the export, which asks what is there, and for the runtime, which makes functions and
methods of it.
"""

from typing import NamedTuple


class ValueOperator(NamedTuple):
    """An operator of `numpy_operators`, how many arrays it takes (0: any number), and the names of
    its attributes in the order in which MXNet takes them."""

    op: str
    arrays: int
    attrs: tuple[str, ...]


_UNARY = (
    'abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees erf exp expm1 fix '
    'floor identity log log10 log1p log2 logical_not negative ones_like radians rcbrt reciprocal '
    'relu rint round rsqrt sigmoid sign sin sinh softsign sqrt square tan tanh trunc zeros_like'
)
_OF_TWO = (
    'add div equal greater greater_equal hypot lesser lesser_equal logical_and logical_or '
    'logical_xor maximum minimum mod mul not_equal power sub'
)
# How many arrays, and attributes: names, with that of the operator if it is another one.
_OTHERS = """
0: add_n
0 axis: stack
0 dim: concat=Concat
1: flatten=Flatten stop_gradient=BlockGrad
1 a_min a_max: clip
1 axes: transpose
1 axis: expand_dims flip=reverse reverse squeeze
1 axis begin end: slice_axis
1 axis is_ascend: sort
1 axis is_ascend dtype: argsort
1 axis k ret_typ is_ascend dtype: topk
1 axis keepdims: argmax argmin
1 axis keepdims exclude: max mean min nansum prod sum
1 axis size: broadcast_axes=broadcast_axis broadcast_axis
1 axis temperature: log_softmax softmax softmin
1 begin end step: slice
1 depth on_value off_value dtype: one_hot
1 dim1 dim2: swapaxes=SwapAxis
1 dtype: astype=Cast cast=Cast
1 num_outputs axis squeeze_axis: split=SliceChannel
1 ord axis out_dtype keepdims: norm
1 repeats axis: repeat
1 reps: tile
1 scalar: smooth_l1
1 shape: broadcast_to
1 shape reverse: reshape=Reshape
2: gather_nd reshape_like
2 axes: slice_like
2 axis keepdims mode: pick
2 axis mode: take
2 lhs_axes rhs_axes: broadcast_like
2 transpose_a transpose_b: batch_dot dot
3: where
"""


def _of_line(line: str) -> dict[str, ValueOperator]:
    (arrays, *attrs), names = [part.split() for part in line.split(':')]
    pairs = [name.partition('=') for name in names]
    return {name: ValueOperator(op or name, int(arrays), tuple(attrs)) for name, _, op in pairs}


VALUE_OPERATORS: dict[str, ValueOperator] = {
    **{name: ValueOperator(name, 1, ()) for name in _UNARY.split()},
    **{f'broadcast_{name}': ValueOperator(f'broadcast_{name}', 2, ()) for name in _OF_TWO.split()},
    **{f'elemwise_{name}': ValueOperator(f'elemwise_{name}', 2, ()) for name in
       ('add', 'sub', 'mul', 'div')},
    **{name: each for line in _OTHERS.strip().splitlines()
       for name, each in _of_line(line).items()},
}  # fmt: skip

# Functions of two arrays, or of an array and a number: the operator of two arrays, with a number,
# and with a number first.
WITH_NUMBERS: dict[str, tuple[str, str, str]] = {
    'add': ('add', 'plus', 'plus'),
    'subtract': ('sub', 'minus', 'rminus'),
    'multiply': ('mul', 'mul', 'mul'),
    'divide': ('div', 'div', 'rdiv'),
    'modulo': ('mod', 'mod', 'rmod'),
    'power': ('power', 'power', 'rpower'),
    **{name: (name, name, name) for name in
       ('maximum', 'minimum', 'equal', 'not_equal', 'logical_and', 'logical_or', 'logical_xor')},
    'greater': ('greater', 'greater', 'lesser'),
    'greater_equal': ('greater_equal', 'greater_equal', 'lesser_equal'),
    'lesser': ('lesser', 'lesser', 'greater'),
    'lesser_equal': ('lesser_equal', 'lesser_equal', 'greater_equal'),
}  # fmt: skip
MAKERS = 'arange', 'array', 'full', 'ones', 'zeros'
CLASS = 'NDArray'  # for isinstance
NAMES = frozenset([*VALUE_OPERATORS, *WITH_NUMBERS, *MAKERS, CLASS]) - {'astype'}  # a method
METHODS = frozenset(['asnumpy', 'asscalar', 'copy', 'as_in_context', 'detach', *VALUE_OPERATORS])
