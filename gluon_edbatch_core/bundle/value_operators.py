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
# Name, operator if it has another name, number of arrays, attributes.
_OTHERS = """
add_n 0
argmax 1 axis keepdims
argmin 1 axis keepdims
argsort 1 axis is_ascend dtype
astype=Cast 1 dtype
batch_dot 2 transpose_a transpose_b
broadcast_axes=broadcast_axis 1 axis size
broadcast_axis 1 axis size
broadcast_like 2 lhs_axes rhs_axes
broadcast_to 1 shape
cast=Cast 1 dtype
clip 1 a_min a_max
concat=Concat 0 dim
dot 2 transpose_a transpose_b
expand_dims 1 axis
flatten=Flatten 1
flip=reverse 1 axis
gather_nd 2
log_softmax 1 axis temperature
max 1 axis keepdims exclude
mean 1 axis keepdims exclude
min 1 axis keepdims exclude
nansum 1 axis keepdims exclude
norm 1 ord axis out_dtype keepdims
one_hot 1 depth on_value off_value dtype
pick 2 axis keepdims mode
prod 1 axis keepdims exclude
repeat 1 repeats axis
reshape=Reshape 1 shape reverse
reshape_like 2
reverse 1 axis
slice 1 begin end step
slice_axis 1 axis begin end
slice_like 2 axes
smooth_l1 1 scalar
softmax 1 axis temperature
softmin 1 axis temperature
sort 1 axis is_ascend
split=SliceChannel 1 num_outputs axis squeeze_axis
squeeze 1 axis
stack 0 axis
stop_gradient=BlockGrad 1
sum 1 axis keepdims exclude
swapaxes=SwapAxis 1 dim1 dim2
take 2 axis mode
tile 1 reps
topk 1 axis k ret_typ is_ascend dtype
transpose 1 axes
where 3
"""


def _of_line(line: str) -> tuple[str, ValueOperator]:
    names, arrays, *attrs = line.split()
    name, _, op = names.partition('=')
    return name, ValueOperator(op or name, int(arrays), tuple(attrs))


VALUE_OPERATORS: dict[str, ValueOperator] = {
    **{name: ValueOperator(name, 1, ()) for name in _UNARY.split()},
    **{f'broadcast_{name}': ValueOperator(f'broadcast_{name}', 2, ()) for name in _OF_TWO.split()},
    **{f'elemwise_{name}': ValueOperator(f'elemwise_{name}', 2, ()) for name in
       ('add', 'sub', 'mul', 'div')},
    **dict(map(_of_line, _OTHERS.strip().splitlines())),
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
