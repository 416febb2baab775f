"""The entries of all operators that are known, family by family."""

from typing import Any, Callable, Optional

from . import (
    attention_fusion,
    channels,
    native,
    numbers,
    recurrence,
    sequence_rules,
    whole,
)
from . import axis_rules as axes
from .attention_fusion import by_heads
from .attrs import Attrs
from .axis_rules import At, AxisLink, finite, keeps, known_links, only_at, same_axes
from .instructions import ADD, AFFINE, COPY, Function, binary_function, unary_function
from .lowering_context import ORDERS, Arrangement
from .native import inverse, scalar
from .numbers import NUMPY_ARITHMETIC, operand
from .registry import Arithmetic, Op, always, register


def _each(names: str, **facts: Any) -> None:
    for name in names.split():
        register(Op(name, **facts))


# --- elementwise, of one array -------------------------------------------------------------------


def _unary(names: str, **facts: Any) -> None:
    _each(names, **{'axis': axes.of_rows, 'whole': whole.alike, 'elementwise': True, **facts})


_AT_ONE = only_at(At.ONE, At.FINITE)


def _affine(name: str, terms: Callable[[Attrs], tuple[float, float]], **facts: Any) -> None:
    """Declare a product or sum with a number; `terms` are what it multiplies by, and adds."""
    _unary(name, native=native.unary(AFFINE, terms), **facts)


for _name, _at in {'tanh': keeps, 'relu': keeps, 'softsign': keeps, 'sigmoid': finite}.items():
    _unary(_name, axis=_at, native=native.unary(native.ACTIVATIONS[_name]))
_unary('square', axis=keeps, native=native.unary(native.SQUARE))
_unary('abs', axis=keeps, native=native.function('Abs', 'x'))
_affine('negative', lambda _: (-1.0, -0.0), axis=keeps)
_unary(
    '_copy',
    axis=keeps,
    native=native.unary(AFFINE, lambda _: COPY),
    arranged=by_heads(attention_fusion.same),
)
_unary('exp', axis=only_at(At.ZERO, At.FINITE), native=native.function('Exp', 'y'))
_unary('log', axis=_AT_ONE, native=native.function('Log', 'x'))
_unary('sqrt', axis=_AT_ONE, native=native.unary(native.SQRT))
_unary('gamma', axis=_AT_ONE, native=native.function('Gamma', 'x'))
_unary('gammaln', axis=_AT_ONE, native=native.function('LogGamma', 'x'))
_unary('erf', axis=keeps, native=native.function('Erf', 'x'))
_unary('erfinv', axis=only_at(At.ZERO, At.ZERO), native=native.function('ErfInv', 'x'))
_RECIPROCAL = unary_function('Reciprocal', 'x', 1)
_unary('reciprocal', axis=_AT_ONE, native=native.unary(_RECIPROCAL, lambda _: (1.0,)))
_unary('clip', axis=finite, native=native.clip, never_adds=True)
_unary('Activation', axis=axes.activation, native=native.activation)
_unary(
    'sign round rint ceil floor trunc fix sin arctan degrees radians arcsinh smooth_l1 Cast '
    '_contrib_round_ste _contrib_sign_ste _contrib_gradientmultiplier',
    axis=keeps,
)
_unary('amp_cast', axis=keeps, never_adds=True)
_unary('hard_sigmoid cos logical_not', axis=finite)
_unary('log1p expm1 tan arcsin sinh arctanh', axis=only_at(At.ZERO, At.ZERO))
_unary('arccos cosh', axis=only_at(At.ZERO, At.FINITE))
_unary('rsqrt cbrt rcbrt log10 log2', axis=_AT_ONE)
_unary('arccosh _contrib_quadratic')
_unary(
    'BlockGrad',
    axis=keeps,
    native=native.stop_gradient,
    arranged=by_heads(attention_fusion.stop_gradient),
)
_unary('zeros_like', axis=keeps, native=native.constant(0.0))
_unary('ones_like', axis=finite, native=native.constant(1.0))
_unary('one_hot', elementwise=False, axis=finite, indices=(0,))
_unary('make_loss MakeLoss', elementwise=False, own_gradient=True)
_each(
    'LeakyReLU',
    elementwise=True,
    axis=axes.first_input,
    native=native.leaky,
    weights=(1,),
    noise=lambda attrs, training: training and attrs.get('act_type') == 'rrelu',
)
_each(
    'Dropout',
    whole=whole.dropout,
    by_value=lambda attrs: not attrs.integers('axes'),
    axis=axes.dropout,
    native=native.dropout,
    arranged=by_heads(attention_fusion.dropout),
    is_view=True,
    noise=lambda attrs, training: training or attrs.get('mode') == 'always',
)

# --- of an array and a number

_affine(
    '_mul_scalar',
    lambda attrs: (scalar(attrs), -0.0),
    axis=keeps,
    arranged=by_heads(attention_fusion.scaled(lambda call: scalar(call.attrs))),
    number=operand('broadcast_mul'),
)
_affine(
    '_div_scalar',
    lambda attrs: (inverse(scalar(attrs)), -0.0),
    axis=axes.scaled,
    arranged=by_heads(attention_fusion.scaled(lambda call: inverse(scalar(call.attrs)))),
    number=operand('broadcast_div'),
)
for _name, _terms, _number in (
    ('_plus_scalar', lambda attrs: (1.0, scalar(attrs)), operand('broadcast_add')),
    ('_minus_scalar', lambda attrs: (1.0, -scalar(attrs)), operand('broadcast_sub')),
    ('_rminus_scalar', lambda attrs: (-1.0, scalar(attrs)), operand('broadcast_sub', first=True)),
):
    _affine(_name, _terms, axis=finite, number=_number)
_unary(
    '_rdiv_scalar',
    axis=_AT_ONE,
    native=native.unary(_RECIPROCAL, lambda attrs: (scalar(attrs),)),
    number=operand('broadcast_div', first=True),
)
for _name in ('maximum', 'minimum'):
    _unary(
        f'_{_name}_scalar',
        axis=finite,
        native=native.function(_name.title(), 'x', scalar),
        number=operand(f'broadcast_{_name}'),
    )
_unary('_power_scalar', axis=axes.power, number=operand('broadcast_power'))
_unary('_rpower_scalar', number=operand('broadcast_power', first=True))
_unary('_mod_scalar', number=operand('broadcast_mod'))
_unary('_rmod_scalar', number=operand('broadcast_mod', first=True))
_unary('_hypot_scalar', number=operand('broadcast_hypot'))
_COMPARISONS: dict[str, Optional[Function]] = {
    name: binary_function(name.title().replace('_', ''))
    for name in 'equal not_equal greater greater_equal lesser lesser_equal'.split()
}
_COMPARISONS |= dict.fromkeys(('logical_and', 'logical_or', 'logical_xor'))
for _name, _function in _COMPARISONS.items():
    _unary(
        f'_{_name}_scalar',
        axis=finite,
        native=_function and native.comparison(_function),
        number=operand(f'broadcast_{_name}'),
    )


# --- elementwise, of two arrays and more ---------------------------------------------------------


def _binary(aligned: str, broadcasting: str, **facts: Any) -> None:
    """Declare a binary operator in both forms, without and with broadcasting."""
    _each(
        f'{aligned} {broadcasting}',
        elementwise=True,
        aligned=aligned,
        whole=whole.elementwise(broadcasting),
        **facts,
    )


for _name, _arithmetic, _padding, _function in (
    ('add', Arithmetic.SUM, keeps, ADD),
    ('sub', Arithmetic.DIFFERENCE, keeps, binary_function('Subtract')),
    ('mul', Arithmetic.PRODUCT, axes.product, binary_function('Multiply', 'xy')),
    ('div', Arithmetic.QUOTIENT, axes.quotient, native.DIVIDE),
):
    _binary(
        f'elemwise_{_name}',
        f'broadcast_{_name}',
        arithmetic=_arithmetic,
        axis=_padding,
        native=native.binary(_function),
    )
for _name, _kind in (('maximum', 'Larger'), ('minimum', 'Smaller')):
    _binary(
        f'_{_name}',
        f'broadcast_{_name}',
        axis=keeps,
        native=native.binary(binary_function(_kind, 'xy')),
    )
for _name, _function in _COMPARISONS.items():
    _binary(
        f'_{_name}',
        f'broadcast_{_name}',
        axis=finite,
        native=_function and native.binary(_function),
    )
_binary('_power', 'broadcast_power', axis=_AT_ONE)
for _name in ('mod', 'hypot'):
    _binary(f'_{_name}', f'broadcast_{_name}', axis=axes.of_rows)
_each(
    '_grad_add',
    axis=axes.keeps,
    whole=whole.elementwise('broadcast_add'),
    elementwise=True,
    arithmetic=Arithmetic.SUM,
    aligned='elemwise_add',
)
_each(
    'add_n',
    whole=whole.add_n,
    elementwise=True,
    arithmetic=Arithmetic.SUM,
    axis=keeps,
    native=native.add_n,
)
_each('where', whole=whole.where, axis=axes.choice, links=same_axes)

# --- products ------------------------------------------------------------------------------------

_each(
    'FullyConnected',
    whole=whole.fully_connected,
    by_value=lambda attrs: not attrs.flag('flatten', True),
    axis=axes.fully_connected,
    native=native.fully_connected,
    weights=(1, 2),
    heavy=True,
)
_each('dot', whole=whole.dot, axis=axes.dot, native=native.dot, heavy=True)
_each(
    'batch_dot',
    whole=whole.batch_dot,
    axis=axes.matrices,
    of_none=0.0,
    native=native.batch_dot,
    arranged=by_heads(attention_fusion.batch_dot),
    heavy=True,
)
_each('_linalg_gemm2', axis=axes.matrices, whole=whole.matrices, never_adds=True)
_each(
    '_linalg_det _linalg_inverse _linalg_gelqf _linalg_gemm _linalg_potrf _linalg_potri '
    '_linalg_slogdet _linalg_sumlogdiag _linalg_syrk _linalg_trmm _linalg_trsm '
    '_linalg_extractdiag _linalg_extracttrian',
    whole=whole.matrices,
)
_each('_linalg_makediag _linalg_maketrian', whole=whole.vectors)

# --- along axes ----------------------------------------------------------------------------------

for _name, _of_none, _reduced, _rule in (
    ('sum', 0.0, axes.reduced(At.ZERO), native.reduction(channels.SUM, of_rows=True)),
    ('mean', 0.0, axes.mean, native.reduction(channels.MEAN, of_rows=True)),
    ('prod nanprod', 1.0, axes.reduced(At.ONE, _AT_ONE), None),
    ('norm', 0.0, axes.norm, None),
    ('nansum', 0.0, axes.reduced(At.ZERO), None),
    ('max', 0.0, axes.reduced(At.LOWEST, finite), native.reduction(channels.GREATEST)),
    ('min', 0.0, axes.reduced(At.HIGHEST, finite), native.reduction(channels.LEAST)),
    ('_npi_var _npi_std', None, axes.rows_only(axes.reduced(At.ZERO)), None),
):
    _each(
        _name,
        whole=whole.reduction,
        axis=_reduced,
        of_none=_of_none,
        native=_rule,
        arranged={Arrangement.CHANNELS: _rule, Arrangement.STEPS: _rule},
        never_adds=_name == 'mean',
    )
_each(
    'softmax',
    whole=whole.later('axis', -1),
    axis=axes.normalised(At.LOWEST, At.ZERO),
    decomposition=axes.decomposed_softmax(),
    native=native.softmax(),
    arranged=by_heads(attention_fusion.softmax),
)
_each(
    'log_softmax',
    whole=whole.along_first,
    axis=axes.normalised(At.LOWEST, At.ANY),
    decomposition=axes.decomposed_softmax(logarithm=True),
    native=native.softmax(log=True),
)
_each(
    'softmin',
    whole=whole.along_first,
    axis=axes.normalised(At.HIGHEST, At.ZERO),
    decomposition=axes.decomposed_softmax(sign=-1),
)
_each(
    'LayerNorm',
    whole=whole.along_first,
    axis=axes.layer_norm,
    native=native.layer_norm,
    weights=(1, 2),
)
_each(
    'L2Normalization',
    whole=whole.l2_normalization,
    axis=axes.l2_normalization,
    native=native.l2_normalization,
)
for _name, _axis, _order, _rule in (
    ('argmax', None, axes.position_of(At.LOWEST), None),
    ('argmin', None, axes.position_of(At.HIGHEST), None),
    ('argsort', -1, axes.ordered(True, 'indices'), native.ordered(True, 'indices')),
    ('sort', -1, axes.ordered(True, 'value'), native.ordered(True, 'value')),
    ('topk', -1, axes.ordered(False, 'indices', 1), native.ordered(False, 'indices', 1)),
):
    _each(_name, axis=_order, native=_rule, whole=whole.or_all(_axis))
_each('argmax_channel', axis=axes.channel_position)
_each('repeat', whole=whole.or_all(None), axis=axes.repeated)
_each(
    '_contrib_div_sqrt_dim',
    whole=whole.alike,
    by_value=lambda attrs: True,
    axis=axes.value_by_value,
    native=native.by_root_of_width,
    arranged=by_heads(attention_fusion.scaled(attention_fusion.by_root_of_columns)),
)

# --- shapes --------------------------------------------------------------------------------------


def _along(name: str, key: str, default: Optional[int], **facts: Any) -> None:
    """Declare an operator that works along one axis, which an attribute names."""
    _each(name, whole=whole.later(key, default), **facts)


def _view(name: str, **facts: Any) -> None:
    """Declare an operator that reshapes elements."""
    facts = {'axis': axes.view, 'is_view': True, **facts}
    _each(name, whole=whole.reshaped, native=native.reshape, **facts)


_view(
    'Reshape',
    arranged={**by_heads(attention_fusion.reshape), Arrangement.STEPS: recurrence.reshape},
)
_view('Flatten')
_view('reshape_like', is_view=False)
_view('expand_dims', arranged=by_heads(attention_fusion.reshape))
_view('squeeze', axis=axes.squeezed)
_each(
    'transpose SwapAxis',
    whole=whole.transpose,
    axis=axes.alike,
    native=native.transpose,
    arranged=dict.fromkeys(ORDERS, native.to_rows),
)
_along('Concat', 'dim', 1, axis=axes.joined, native=native.concat)
_each('stack', whole=whole.stack, axis=axes.alike)
_along(
    'slice_axis',
    'axis',
    None,
    axis=axes.other_axis('axis', None),
    native=native.slice_axis,
    arranged={Arrangement.STEPS: recurrence.one_step},
    number=numbers.position,
    is_view=True,
)
_each(
    'slice',
    whole=whole.slice_,
    axis=axes.slices,
    native=native.slice_axes,
    is_view=True,
)
_each('slice_like', axis=axes.same_lengths, whole=whole.slice_like)
_PARTS = axes.other_axis('axis', 1)
_along('SliceChannel', 'axis', 1, axis=_PARTS, native=native.slice_channel, is_view=True)
_along('_split_v2', 'axis', 1, axis=_PARTS, never_adds=True)
_BROADCASTS = {'whole': whole.broadcast_to, 'axis': axes.broadcast}
_each('broadcast_to broadcast_axis', **_BROADCASTS)
_each('broadcast_like', native=native.broadcast_like, **_BROADCASTS)
_each('tile', whole=whole.tile, axis=axes.tiled)
_each(
    'reverse',
    whole=whole.reverse,
    axis=axes.turned,
    never_adds=True,
)
_each('Pad', axis=axes.padded)

# --- positions -----------------------------------------------------------------------------------

_each(
    'Embedding',
    by_value=lambda attrs: True,
    axis=axes.lookup,
    native=native.embedding,
    arranged=by_heads(attention_fusion.look_up),
    indices=(0,),
    weights=(1,),
    unread=(1,),
)
_each(
    'take',
    axis=axes.taken,
    whole=whole.take,
    native=native.take,
    indices=(1,),
    weights=(0,),
    unread=(0,),
)
_along('pick', 'axis', -1, axis=axes.pick, native=native.pick, indices=(1,))
_each('gather_nd batch_take softmax_cross_entropy', indices=(1,))

_each(
    '_contrib_arange_like',
    of_axis=lambda attrs: attrs.integer('axis', None),
    axis=axes.positions,
    native=attention_fusion.positions,
)

# --- sequences -----------------------------------------------------------------------------------

for _name, _padded, _native in (
    ('SequenceMask', axes.sequence_mask, native.sequence_mask),
    ('SequenceLast', axes.sequence_last, None),
    ('SequenceReverse', axes.sequences, None),
):
    _each(
        _name,
        whole=whole.sequence,
        axis=_padded,
        native=_native,
        indices=(1,),
    )
_each(
    'RNN',
    whole=whole.rnn,
    axis=sequence_rules.recurrent,
    links=known_links(AxisLink((0, None, None, None), 0)),
    arranged={Arrangement.STEPS: recurrence.layer},
    never_adds=True,
    noise=lambda attrs, training: training,
)
_each('CTCLoss', whole=whole.ctc)
for _name, _links in (
    ('selfatt_qk', known_links(AxisLink((0,), 1), AxisLink((0,), 2))),
    ('selfatt_valatt', known_links(AxisLink((None, 1), 0), AxisLink((0, 2), None))),
    ('encdec_qk encdec_valatt', None),
):
    _each(
        ' '.join(f'_contrib_interleaved_matmul_{each}' for each in _name.split()),
        whole=whole.interleaved,
        axis=axes.matrices,
        of_none=0.0,
        links=_links,
        heavy=True,
    )

# --- images and their normalisation --------------------------------------------------------------

_each(
    'Convolution',
    axis=sequence_rules.convolution,
    arranged={Arrangement.CHANNELS: channels.convolution},
    weights=(1, 2),
    heavy=True,
)
_each('Deconvolution GroupNorm InstanceNorm', axis=axes.first_axis, weights=(1, 2))
_each(
    'BatchNorm',
    axis=axes.rows_only(axes.batch_norm),
    statistics=lambda attrs, training: training and not attrs.flag('use_global_stats'),
)
_each(
    'Pooling',
    axis=sequence_rules.pooling,
    of_none=0.0,
    arranged={Arrangement.CHANNELS: channels.pooling},
)
_each(
    'LRN _contrib_AdaptiveAvgPooling2D _contrib_BilinearResize2D depth_to_space space_to_depth '
    'im2col',
    axis=axes.first_axis,
)
_each('UpSampling', axis=axes.upsampling)

# --- loss heads, and what draws random numbers ---------------------------------------------------

# Custom and _CustomFunction are Python of the user, who may do the same.
_each(
    'SoftmaxOutput LinearRegressionOutput MAERegressionOutput LogisticRegressionOutput SVMOutput '
    'IdentityAttachKLSparseReg Custom _CustomFunction',
    own_gradient=True,
)
_each(
    '_random_uniform_like _random_normal_like _random_gamma_like', axis=axes.of_rows, noise=always
)
_each(
    '_shuffle _npi_bernoulli _npi_choice _npi_exponential _npi_gamma _npi_gumbel _npi_logistic '
    '_npi_multinomial _npi_normal _npi_normal_n _npi_pareto _npi_rayleigh _npi_uniform '
    '_npi_uniform_n _npi_weibull',
    noise=always,
)

# --- NumPy mode: what has no equal in mx.nd, or not of all dtypes (see `subgraph.numpy_mode`) ----


def _broadcasting(names: str) -> None:
    _each(names, axis=axes.of_rows, whole=whole.broadcasting, elementwise=True)


_NUMPY_UNARY = (
    'absolute negative sign rint ceil floor trunc fix square sqrt cbrt exp expm1 log log1p log2 '
    'log10 reciprocal sin cos tan tanh arcsin arccos arctan sinh cosh arcsinh arccosh arctanh '
    'degrees radians logical_not bitwise_not around isnan isinf isfinite isposinf isneginf '
    'nan_to_num'
)
_NUMPY_BINARY = (
    'add subtract multiply true_divide mod power equal not_equal less less_equal greater '
    'greater_equal bitwise_and bitwise_or bitwise_xor arctan2 copysign ldexp'
)
_unary(' '.join([f'_npi_{_name}' for _name in _NUMPY_UNARY.split()]))
for _name, (_form, _, _of_number) in NUMPY_ARITHMETIC.items():
    _unary(f'_npi_{_name}_scalar', number=operand(_form))
    if _of_number:
        _unary(f'_npi_r{_name}_scalar', number=operand(_form, first=True))
_unary(
    ' '.join(
        f'_npi_{_name}_scalar'
        for _name in (
            'equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or '
            'bitwise_xor arctan2 rarctan2 ldexp rldexp'
        ).split()
    )
)
_unary('_npi_full_like _npi_where_scalar2', elementwise=False)
_broadcasting(' '.join([f'_npi_{_name}' for _name in _NUMPY_BINARY.split()]))
_broadcasting('_npi_hypot _npi_where _npi_where_lscalar _npi_where_rscalar')
_along('_np_cumsum', 'axis', None, axis=axes.running)
