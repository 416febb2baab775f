"""Arguments for operators that do not take any shapes: a function of a `Draw` each."""

from collections.abc import Sequence
from typing import Callable

from .cases import Draw, Input

Maker = Callable[[Draw], list[Input]]
MAKERS: dict[str, Maker] = {}


def _for(names: str) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(names.split(), maker))
        return maker

    return register


def _index(draw: Draw, shape: Sequence[int], top: int, shared: bool = False) -> Input:
    return Input(tuple(shape), 'index', shared, draw.pick(['float32', 'int32', 'uint8']), top)


def _weight(*shape: int) -> Input:
    return Input(shape, shared=True)


def _single(draw: Draw) -> None:
    """MXNet has the operator in single precision only."""
    draw.dtypes = ('float32',)


# --- layers --------------------------------------------------------------------------------------


@_for('FullyConnected')
def _(draw):
    shape, hidden = draw.shape(1, 4), draw.number(1, 3)
    flat = draw.maybe('flatten', True, False)
    depth = shape[-1]
    if flat in (None, True):
        depth = 1
        for length in shape[1:]:
            depth *= length
    draw.attrs['num_hidden'] = hidden
    draw.attrs['no_bias'] = draw.flag()
    shared = draw.flag(0.8)
    weights = [Input((hidden, depth), shared=shared)]
    return (
        [Input(shape)] + weights + [Input((hidden,), shared=shared)] * (not draw.attrs['no_bias'])
    )


def _window(draw, axes):
    kernel = tuple(draw.number(1, 3) for _ in range(axes))
    draw.attrs['kernel'] = kernel
    if draw.flag():
        draw.attrs['stride'] = tuple(draw.number(1, 2) for _ in range(axes))
    if draw.flag():
        draw.attrs['pad'] = tuple(draw.number(0, length // 2) for length in kernel)
    return kernel


def _filters(draw, axes):
    """Shapes of the image and of what the filters are."""
    groups = draw.number(1, 2)
    channels, filters = groups * draw.number(1, 2), groups * draw.number(1, 2)
    kernel = _window(draw, axes)
    draw.attrs.update(num_filter=filters, num_group=groups, no_bias=draw.flag())
    return (draw.number(1, 2), channels) + (5,) * axes, (channels, filters, groups) + kernel


def _filtered(draw, image, weight):
    bias = [_weight(draw.attrs['num_filter'])] * (not draw.attrs['no_bias'])
    return [Input(image), Input(weight, shared=draw.flag(0.8))] + bias


@_for('Convolution')
def _(draw):
    image, (channels, filters, groups, *kernel) = _filters(draw, draw.number(1, 3))
    return _filtered(draw, image, (filters, channels // groups, *kernel))


@_for('Convolution_v1')
def _(draw):
    image, (channels, filters, groups, *kernel) = _filters(draw, 2)
    return _filtered(draw, image, (filters, channels // groups, *kernel))


@_for('Deconvolution')
def _(draw):
    image, (channels, filters, groups, *kernel) = _filters(draw, draw.pick([1, 2, 2, 3]))
    if len(kernel) == 3:
        _single(draw)
    if draw.flag(0.3):
        draw.attrs['adj'] = tuple(
            draw.number(0, step - 1) for step in draw.attrs.get('stride', (1,) * len(kernel))
        )
    return _filtered(draw, image, (channels, filters // groups, *kernel))


@_for('Pooling_v1')
def _(draw):
    _window(draw, 2)
    draw.maybe('global_pool', True, False)
    draw.maybe('pool_type', 'max', 'avg', 'sum')
    draw.maybe('pooling_convention', 'valid', 'full')
    return [Input((draw.number(1, 2), draw.number(1, 2), 5, 5))]


@_for('Pooling')
def _(draw):
    axes = draw.number(1, 3)
    if draw.maybe('global_pool', True, False) is not True:
        _window(draw, axes)
    draw.maybe('pool_type', 'max', 'avg', 'sum', 'lp')
    if draw.attrs.get('pool_type') == 'lp':
        draw.attrs['p_value'] = 2
    draw.maybe('pooling_convention', 'valid', 'full')
    draw.maybe('count_include_pad', True, False)
    return [Input((draw.number(1, 2), draw.number(1, 2)) + (5,) * axes)]


@_for('BatchNorm_v1 _contrib_BatchNormWithReLU _contrib_SyncBatchNorm')
def _(draw):
    _single(draw)
    return _normalised(draw, draw.shape(4, 4))


@_for('_contrib_SyncBatchNorm')
def _(draw):
    draw.attrs.update(key='walk', ndev=1)
    return MAKERS['BatchNorm_v1'](draw)


@_for('BatchNorm')
def _(draw):
    return _normalised(draw, draw.shape(2, 4))


def _normalised(draw, shape):
    draw.maybe('use_global_stats', True, False)
    draw.maybe('fix_gamma', True, False)
    return [Input(shape)] + [_weight(shape[1])] * 2 + [Input((shape[1],), 'state', True)] * 2


@_for('LayerNorm')
def _(draw):
    shape = draw.shape(2, 4)
    axis = draw.axis(len(shape))
    draw.attrs['axis'] = axis
    draw.maybe('output_mean_var', True, False)
    return [Input(shape), _weight(shape[axis]), _weight(shape[axis])]


@_for('GroupNorm')
def _(draw):
    groups = draw.number(1, 2)
    channels = groups * draw.number(1, 2)
    draw.attrs['num_groups'] = groups
    return [
        Input((draw.number(1, 3), channels) + draw.shape(1, 2)),
        _weight(groups),
        _weight(groups),
    ]


@_for('InstanceNorm')
def _(draw):
    _single(draw)
    shape = draw.shape(3, 4)
    return [Input(shape), _weight(shape[1]), _weight(shape[1])]


@_for('L2Normalization')
def _(draw):
    draw.maybe('mode', 'instance', 'channel', 'spatial')
    return [Input(draw.shape(3, 4))]


@_for('LRN')
def _(draw):
    _single(draw)
    draw.attrs['nsize'] = draw.pick([1, 3])
    return [Input((draw.number(1, 3), draw.number(1, 4), 3, 3))]


@_for('Dropout')
def _(draw):
    shape = draw.shape(1, 4)
    draw.attrs['p'] = draw.pick([0, 0.5])
    draw.maybe('mode', 'training', 'always')
    if draw.flag(0.3):
        draw.attrs['axes'] = tuple(sorted({draw.number(0, len(shape) - 1)}))
    return [Input(shape)]


@_for('Activation')
def _(draw):
    draw.attrs['act_type'] = draw.pick(['relu', 'sigmoid', 'tanh', 'softrelu', 'softsign'])
    return [Input(draw.shape())]


@_for('LeakyReLU')
def _(draw):
    kind = draw.maybe('act_type', 'leaky', 'elu', 'selu', 'gelu', 'prelu', 'rrelu')
    draw.maybe('slope', 0.3, 0.1)
    shape = draw.shape(2, 4)
    return [Input(shape)] + [_weight(shape[1])] * (kind == 'prelu')


@_for('SoftmaxActivation')
def _(draw):
    _single(draw)
    mode = draw.maybe('mode', 'instance', 'channel')
    return [Input(draw.shape(3 if mode == 'channel' else 2, 4))]


@_for('RNN')
def _(draw):
    mode = draw.pick(['rnn_relu', 'rnn_tanh', 'lstm', 'gru'])
    gates = {'lstm': 4, 'gru': 3}.get(mode, 1)
    steps, batch, width, hidden = (draw.number(1, 3) for _ in range(4))
    layers, ways = draw.number(1, 2), draw.number(1, 2)
    draw.attrs.update(
        mode=mode,
        state_size=hidden,
        num_layers=layers,
        bidirectional=ways == 2,
        state_outputs=draw.flag(),
    )
    size = 0
    for layer in range(layers):
        size += ways * gates * hidden * ((width if not layer else hidden * ways) + hidden + 2)
    states = [Input((layers * ways, batch, hidden), shared=draw.flag(0.3))]
    return [Input((steps, batch, width)), _weight(size)] + states * (1 + (mode == 'lstm'))


@_for('multi_all_finite')
def _(draw):
    """Not ``init_output=False``, which reads what happens to lie where the result will be."""
    draw.attrs['num_arrays'] = draw.number(1, 3)
    return [Input(draw.shape(1, 3)) for _ in range(draw.attrs['num_arrays'])]


@_for('multi_sum_sq')
def _(draw):
    draw.attrs['num_arrays'] = draw.number(1, 3)
    return [Input(draw.shape(1, 3)) for _ in range(draw.attrs['num_arrays'])]


@_for('_mp_adamw_update')
def _(draw):
    """Return arrays of one shape: MXNet checks none, and reads beyond arrays that are too small."""
    draw.attrs.update(lr=0.3, eta=draw.pick([1.0, 0.5]))
    draw.maybe('wd', 0.3)
    draw.maybe('beta1', 0.5)
    shape = draw.shape(1, 3)
    return [Input(shape, shared=draw.flag(0.3)) for _ in range(5)] + [Input((1,))]


@_for('UpSampling')
def _(draw):
    draw.attrs.update(scale=draw.number(1, 3), sample_type='nearest', num_args=1)
    return [Input((draw.number(1, 2), draw.number(1, 2), 3, 2))]


@_for('Pad')
def _(draw):
    rank = draw.number(4, 5)
    draw.attrs['mode'] = draw.pick(['constant', 'edge', 'reflect'])
    draw.attrs['pad_width'] = (0, 0, 0, 0) + tuple(draw.number(0, 1) for _ in range(2 * rank - 4))
    draw.maybe('constant_value', 0, 1.5)
    return [Input((draw.number(1, 2),) * 2 + (3,) * (rank - 2))]


@_for('im2col')
def _(draw):
    _window(draw, 2)
    return [Input((draw.number(1, 2), draw.number(1, 2), 5, 5))]


@_for('col2im')
def _(draw):
    draw.attrs.update(kernel=(2, 2), output_size=(3, 3))
    return [Input((draw.number(1, 2), 4 * draw.number(1, 2), 4))]


@_for('depth_to_space space_to_depth')
def _(draw):
    draw.attrs['block_size'] = 2
    return [Input((draw.number(1, 2), 4 * draw.number(1, 2), 4, 2))]


@_for('_contrib_AdaptiveAvgPooling2D')
def _(draw):
    draw.maybe('output_size', 1, 2, (2, 3))
    return [Input((draw.number(1, 2), 2, 5, 4))]


@_for('_contrib_BilinearResize2D')
def _(draw):
    draw.attrs.update(height=draw.number(1, 5), width=draw.number(1, 5))
    return [Input((draw.number(1, 2), 2, 4, 3))]


# --- softmax, losses -----------------------------------------------------------------------------


@_for('softmax log_softmax softmin')
def _(draw):
    shape = draw.shape()
    draw.maybe('axis', draw.axis(len(shape)))
    draw.maybe('temperature', None, 2.0, 1.0)
    draw.maybe('dtype', None, 'float32', 'float64')
    if draw.flag(0.2) and len(shape) > 1:
        draw.attrs.update(axis=len(shape) - 1, use_length=True)
        return [Input(shape), Input(shape[:-1], 'length', dtype='int32', top=shape[-1])]
    return [Input(shape)]


@_for('softmax_cross_entropy')
def _(draw):
    rows, classes = draw.number(1, 3), draw.number(1, 4)
    return [Input((rows, classes)), Input((rows,), 'index', top=classes)]


@_for('SoftmaxOutput')
def _(draw):
    draw.maybe('normalization', 'null', 'batch', 'valid')
    draw.maybe('use_ignore', True, False)
    draw.maybe('ignore_label', 0, 1)
    draw.maybe('grad_scale', 0.5, 3.0)
    return _classified(draw)


@_for('SVMOutput')
def _(draw):
    draw.maybe('margin', 0.5, 1.0)
    draw.maybe('regularization_coefficient', 0.5, 3.0)
    draw.maybe('use_linear', True, False)
    return _classified(draw)


def _classified(draw):
    rows, classes = draw.number(1, 3), draw.number(2, 4)
    return [Input((rows, classes)), Input((rows,), 'index', draw.flag(0.2), '', classes)]


@_for('IdentityAttachKLSparseReg')
def _(draw):
    draw.maybe('penalty', 0.5, 0.01)
    draw.maybe('sparseness_target', 0.3, 0.1)
    _single(draw)
    shape = draw.shape(2, 2)
    return [Input(shape, 'half'), Input(shape[1:], 'state', True)]


@_for('LinearRegressionOutput MAERegressionOutput LogisticRegressionOutput')
def _(draw):
    shape = draw.shape(1, 3)
    draw.maybe('grad_scale', 0.5, 3.0)
    return [Input(shape), Input(shape, shared=draw.flag(0.3))]


@_for('MakeLoss')
def _(draw):
    draw.maybe('normalization', 'null', 'batch', 'valid')
    draw.maybe('grad_scale', 0.5, 3.0)
    draw.maybe('valid_thresh', 0.0, 0.5)
    return [Input(draw.shape())]


@_for('CTCLoss')
def _(draw):
    """MXNet computes nothing of a call whose labels are all empty."""
    _single(draw)
    draw.longer = False
    steps, batch, classes, labels = draw.number(3, 5), draw.number(1, 2), 4, 2
    last = draw.maybe('blank_label', 'first', 'last') == 'last'
    inputs = [
        Input((steps, batch, classes)),
        Input((batch, labels), 'index' if last else 'length', top=3),
    ]
    if draw.flag(0.4):
        draw.attrs['use_data_lengths'] = True
        inputs.append(Input((batch,), 'length', top=steps))
    if draw.flag(0.4):
        draw.attrs['use_label_lengths'] = True
        inputs.append(Input((batch,), 'length', top=labels))
    return inputs


# --- indexing ------------------------------------------------------------------------------------


@_for('Embedding')
def _(draw):
    words, width = draw.number(1, 5), draw.number(1, 3)
    draw.attrs.update(input_dim=words, output_dim=width)
    return [_index(draw, draw.shape(1, 3), words), _weight(words, width)]


@_for('take')
def _(draw):
    shape = draw.shape(1, 3)
    axis = draw.axis(len(shape))
    if draw.flag(0.8):
        draw.attrs['axis'] = axis
    else:
        axis = 0
    draw.maybe('mode', 'clip', 'wrap')
    which = draw.number(0, 2)
    return [
        Input(shape, shared=which == 1),
        _index(draw, draw.shape(1, 2), shape[axis] + draw.number(0, 2), which == 2),
    ]


@_for('batch_take')
def _(draw):
    rows, width = draw.number(1, 4), draw.number(1, 4)
    return [Input((rows, width)), Input((rows,), 'index', dtype='int32', top=width)]


@_for('pick')
def _(draw):
    shape = draw.shape(1, 3)
    axis = draw.axis(len(shape))
    if axis != -1 or draw.flag():
        draw.attrs['axis'] = axis
    draw.maybe('keepdims', True, False)
    draw.maybe('mode', 'clip', 'wrap')
    axis %= len(shape)
    draw.longer = axis > 0
    index = shape[:axis] + shape[axis + 1 :] or (1,)
    return [Input(shape), _index(draw, index, shape[axis] + draw.number(0, 1), draw.flag(0.2))]


@_for('one_hot')
def _(draw):
    draw.attrs['depth'] = draw.number(1, 4)
    draw.maybe('on_value', 2.0)
    draw.maybe('off_value', -1.0)
    draw.maybe('dtype', 'float32', 'float64', 'int32')
    return [_index(draw, draw.shape(1, 3), 4)]


@_for('gather_nd')
def _(draw):
    shape = draw.shape(1, 3)
    depth = draw.number(1, len(shape))
    return [
        Input(shape, shared=draw.flag(0.3)),
        _index(draw, (depth,) + draw.shape(1, 2), min(shape[:depth])),
    ]


@_for('scatter_nd _scatter_set_nd')
def _(draw):
    count = draw.number(1, 3)
    draw.attrs['shape'] = (4, 3)
    return [Input((count, 3)), _index(draw, (1, count), 4)]


@_for('where')
def _(draw):
    shape = draw.shape()
    condition = shape[:1] if draw.flag(0.3) else shape
    return [
        Input(condition, 'index', draw.flag(0.2), top=2),
        Input(shape),
        Input(shape, shared=draw.flag(0.2)),
    ]


@_for('SequenceReverse')
def _(draw):
    return _sequences(draw, 0)


@_for('SequenceMask SequenceLast')
def _(draw):
    return _sequences(draw, draw.maybe('axis', 0, 1) or 0)


def _sequences(draw, axis):
    shape, lengths = draw.shape(2, 4), draw.flag(0.6)
    draw.attrs['use_sequence_length'] = lengths
    if not lengths:
        return [Input(shape)]
    draw.longer = axis == 1
    return [
        Input(shape),
        Input(
            shape[1 - axis : 2 - axis],
            'length',
            draw.flag(0.2),
            draw.pick(['', 'float32']),
            shape[axis],
        ),
    ]


@_for('_ravel_multi_index')
def _(draw):
    draw.attrs['shape'] = (4, 3)
    return [_index(draw, (2, draw.number(1, 3)), 3)]


@_for('_unravel_index')
def _(draw):
    draw.attrs['shape'] = (4, 3)
    return [_index(draw, (draw.number(1, 3),), 12)]


@_for('_contrib_boolean_mask')
def _(draw):
    rows = draw.number(1, 3)
    return [Input((rows, 2)), _index(draw, (rows,), 2)]


@_for('_contrib_index_copy')
def _(draw):
    return [Input((4, 2)), Input((2,), 'index', dtype='int32', top=4), Input((2, 2))]


# --- shapes --------------------------------------------------------------------------------------


@_for('Reshape')
def _(draw):
    shape = draw.shape(1, 4)
    choices = [
        (-1,),
        (0, -1),
        (-1, shape[-1]),
        (0, 0, -1),
        (-2,),
        (-3, -2),
        (-1, 1),
        (1, -1),
        tuple(reversed(shape)),
        (0, 1, -2),
        (-4, 1, -1, -2),
        (-1, 1, 1),
    ]
    draw.attrs['shape'] = draw.pick(choices)
    draw.maybe('reverse', False, False, True)
    return [Input(shape)]


@_for('reshape_like')
def _(draw):
    shape = draw.shape(2, 3)
    size = 1
    for length in shape:
        size *= length
    return [Input((size,) if draw.flag() else shape), Input(shape, shared=draw.flag(0.3))]


@_for('transpose')
def _(draw):
    shape = draw.shape(1, 4)
    if draw.flag(0.8):
        draw.attrs['axes'] = tuple(draw.random.permutation(len(shape)).tolist())
    return [Input(shape)]


@_for('SwapAxis')
def _(draw):
    shape = draw.shape(1, 4)
    draw.attrs.update(dim1=draw.axis(len(shape)), dim2=draw.axis(len(shape)))
    return [Input(shape)]


@_for('expand_dims')
def _(draw):
    shape = draw.shape(1, 3)
    draw.attrs['axis'] = draw.number(-len(shape) - 1, len(shape))
    return [Input(shape)]


@_for('squeeze')
def _(draw):
    shape = tuple(draw.pick([1, 1, 2]) for _ in range(draw.number(2, 4)))
    ones = [axis for axis, length in enumerate(shape) if length == 1]
    if ones and draw.flag(0.7):
        draw.attrs['axis'] = draw.pick(ones) - len(shape) * draw.flag(0.4)
    return [Input(shape)]


@_for('Concat')
def _(draw):
    shape, axis = draw.shape(1, 4), draw.number(0, 3)
    axis %= len(shape)
    draw.attrs.update(num_args=draw.number(1, 3), dim=axis - len(shape) * draw.flag(0.4))
    return [
        Input(
            shape[:axis] + (draw.number(1, 3),) + shape[axis + 1 :],
            shared=position > 0 and draw.flag(0.2),
        )
        for position in range(draw.attrs['num_args'])
    ]


@_for('stack')
def _(draw):
    shape = draw.shape(1, 3)
    draw.attrs.update(num_args=draw.number(1, 3), axis=draw.number(-len(shape) - 1, len(shape)))
    return [
        Input(shape, shared=position > 0 and draw.flag(0.2))
        for position in range(draw.attrs['num_args'])
    ]


@_for('SliceChannel')
def _(draw):
    shape, parts = list(draw.shape(1, 3)), draw.number(1, 3)
    axis = draw.number(0, len(shape) - 1)
    shape[axis] = parts * draw.number(1, 2)
    draw.attrs.update(num_outputs=parts, axis=axis - len(shape) * draw.flag(0.4))
    if shape[axis] == parts:
        draw.maybe('squeeze_axis', True, False)
    return [Input(tuple(shape))]


@_for('_split_v2')
def _(draw):
    shape = list(draw.shape(1, 3))
    axis = draw.number(0, len(shape) - 1)
    shape[axis] = 4
    draw.attrs['axis'] = axis - len(shape) * draw.flag(0.4)
    if draw.flag():
        draw.attrs.update(sections=draw.pick([1, 2, 4]), indices=(0,))
    else:
        draw.attrs['indices'] = draw.pick([(0, 1), (0, 2), (0, 1, 3)])
    return [Input(tuple(shape))]


@_for('slice')
def _(draw):
    shape = draw.shape(1, 4)
    count = draw.number(1, len(shape))
    draw.attrs['begin'] = tuple(
        draw.pick([None, 0, -length, length - 1]) for length in shape[:count]
    )
    draw.attrs['end'] = tuple(draw.pick([None, length, length + 2]) for length in shape[:count])
    if draw.flag(0.3):
        draw.attrs['step'] = tuple(draw.pick([None, 1, 2]) for _ in range(count))
    return [Input(shape)]


@_for('slice_axis')
def _(draw):
    shape = draw.shape(1, 4)
    axis = draw.axis(len(shape))
    begin = draw.number(-shape[axis], shape[axis] - 1)
    draw.attrs.update(axis=axis, begin=begin, end=draw.pick([None, shape[axis]]))
    return [Input(shape)]


@_for('slice_like')
def _(draw):
    shape = draw.shape(1, 3)
    if draw.flag(0.5):
        draw.attrs['axes'] = (draw.axis(len(shape)),)
    return [
        Input(tuple(length + draw.number(0, 1) for length in shape)),
        Input(shape, shared=draw.flag(0.3)),
    ]


@_for('_slice_assign')
def _(draw):
    draw.attrs.update(begin=(0, 1), end=(1, 3))
    return [Input((2, 3)), Input((1, 2))]


@_for('tile')
def _(draw):
    draw.attrs['reps'] = tuple(draw.number(1, 2) for _ in range(draw.number(1, 3)))
    return [Input(draw.shape(1, 3))]


@_for('repeat')
def _(draw):
    shape = draw.shape(1, 3)
    draw.attrs['repeats'] = draw.number(1, 3)
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axis(len(shape), none=True)
    return [Input(shape)]


@_for('reverse')
def _(draw):
    shape = draw.shape(1, 3)
    axes = tuple(axis % len(shape) for axis in _several(draw.axes(len(shape), none=False)))
    draw.attrs['axis'] = axes[0] if len(axes) == 1 and draw.flag() else axes
    return [Input(shape)]


def _several(axes):
    return axes if isinstance(axes, tuple) else (axes,)


@_for('broadcast_to _npi_broadcast_to')
def _(draw):
    shape = tuple(draw.pick([1, 2]) for _ in range(draw.number(1, 3)))
    draw.attrs['shape'] = tuple(
        draw.pick([0, 3]) if length == 1 else draw.pick([0, length]) for length in shape
    )
    return [Input(shape)]


@_for('broadcast_axis')
def _(draw):
    shape = (draw.pick([1, 2]), 1, 3)
    draw.attrs.update(
        draw.pick(
            [dict(axis=1, size=2), dict(axis=(1,), size=(3,))]
            + [dict(axis=(0, 1), size=(2, 2)), dict(axis=0, size=2)] * (shape[0] == 1)
        )
    )
    draw.longer = False
    return [Input(shape)]


@_for('broadcast_like')
def _(draw):
    shape = draw.shape(1, 3)
    return [
        Input(tuple(1 if draw.flag() else length for length in shape)),
        Input(shape, shared=draw.flag(0.3)),
    ]


@_for('Crop')
def _(draw):
    _single(draw)
    draw.attrs.update(num_args=1, h_w=(2, 2), offset=(1, 0))
    return [Input((draw.number(1, 2), 2, 4, 3))]


@_for('diag')
def _(draw):
    shape = draw.shape(1, 3)
    draw.maybe('k', 0, 0, 1, -1)
    if len(shape) == 3:
        draw.maybe('axis1', 0, 1)
        draw.maybe('axis2', 2)
    return [Input(shape)]


# --- reductions, sorting -------------------------------------------------------------------------


@_for('sum mean prod nansum nanprod max min norm')
def _(draw):
    shape = draw.shape()
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axes(len(shape))
    draw.maybe('keepdims', True, False)
    return [Input(shape)]


for _name in 'sum mean prod nansum nanprod max min'.split():

    def _excluding(draw, maker=MAKERS[_name]):
        draw.maybe('exclude', True, False, False)
        return maker(draw)

    MAKERS[_name] = _excluding


@_for('norm')
def _(draw):
    shape = draw.shape()
    draw.maybe('ord', 1, 2)
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.pick([draw.axis(len(shape), none=True)])
    draw.maybe('keepdims', True, False)
    return [Input(shape)]


@_for('moments')
def _(draw):
    shape = draw.shape()
    draw.attrs['axes'] = draw.axes(len(shape))
    draw.maybe('keepdims', True, False)
    return [Input(shape)]


@_for('argmax argmin')
def _(draw):
    shape = draw.shape()
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axis(len(shape), none=True)
    draw.maybe('keepdims', True, False)
    return [Input(shape)]


@_for('sort argsort')
def _(draw):
    shape = draw.shape()
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axis(len(shape), none=True)
    draw.maybe('is_ascend', True, False)
    return [Input(shape)]


@_for('topk')
def _(draw):
    shape = draw.shape()
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axis(len(shape), none=True)
    draw.maybe('k', 1, 1, 2)
    draw.maybe('ret_typ', 'indices', 'value', 'mask', 'both')
    draw.maybe('is_ascend', True, False)
    return [Input(shape)]


@_for('_np_cumsum')
def _(draw):
    shape = draw.shape()
    if draw.flag(0.8):
        draw.attrs['axis'] = draw.axis(len(shape), none=True)
    return [Input(shape)]


@_for('clip')
def _(draw):
    draw.attrs.update(a_min=draw.pick([-0.3, -1.0]), a_max=draw.pick([0.4, 1.0]))
    return [Input(draw.shape())]


@_for('erfinv arccos arcsin arctanh')
def _(draw):
    return [Input(draw.shape(), 'unit')]


@_for('log log2 log10 log1p sqrt rsqrt gammaln gamma reciprocal rcbrt cbrt')
def _(draw):
    return [Input(draw.shape(), 'positive')]


@_for('arccosh')
def _(draw):
    return [Input(draw.shape(), 'large')]


# --- products ------------------------------------------------------------------------------------


@_for('dot')
def _(draw):
    m, k, n = (draw.number(1, 3) for _ in range(3))
    left, right = draw.flag(0.3), draw.flag(0.3)
    if draw.flag(0.7):
        draw.attrs.update(transpose_a=left, transpose_b=right)
        a, b = (k, m) if left else (m, k), (n, k) if right else (k, n)
    else:
        a, b = draw.pick(
            [((k,), (k,)), ((m, k), (k,)), ((k,), (k, n)), ((2, m, k), (k, n)), ((m, k), (k, 2, n))]
        )
    which = draw.number(0, 3)
    return [Input(a, shared=which == 1), Input(b, shared=which == 2)]


@_for('batch_dot')
def _(draw):
    b, m, k, n = (draw.number(1, 3) for _ in range(4))
    left, right = draw.flag(0.3), draw.flag(0.3)
    draw.attrs.update(transpose_a=left, transpose_b=right)
    which = draw.number(0, 4)
    return [
        Input((b, k, m) if left else (b, m, k), shared=which == 1),
        Input((b, n, k) if right else (b, k, n), shared=which == 2),
    ]


@_for('khatri_rao')
def _(draw):
    draw.attrs['num_args'] = 2
    return [Input((draw.number(1, 3), 2)), Input((draw.number(1, 3), 2))]


def _front(draw):
    return draw.shape(0, 2, 2)


@_for('_linalg_gemm _linalg_gemm2')
def _(draw):
    front = _front(draw)
    m, k, n = (draw.number(1, 3) for _ in range(3))
    draw.attrs['alpha'] = draw.pick([1.0, 0.5])
    return [
        Input(front + (m, k)),
        Input(front + (k, n), shared=draw.flag(0.2)),
        Input(front + (m, n)),
    ]


@_for('_linalg_gemm2')
def _(draw):
    inputs = MAKERS['_linalg_gemm'](draw)[:2]
    if draw.flag(0.4):
        draw.attrs.update(transpose_b=True)
        (*front, k, n) = inputs[1].shape
        return [inputs[0], inputs[1]._replace(shape=(*front, n, k))]
    return inputs


@_for('_linalg_potrf _linalg_inverse _linalg_det _linalg_slogdet _linalg_syevd _linalg_sumlogdiag')
def _(draw):
    n = draw.number(1, 3)
    return [Input(_front(draw) + (n, n), 'spd')]


@_for('_linalg_potri')
def _(draw):
    n = draw.number(1, 3)
    return [Input(_front(draw) + (n, n), 'lower')]


@_for('_linalg_trmm _linalg_trsm')
def _(draw):
    front, n, m = _front(draw), draw.number(1, 3), draw.number(1, 3)
    right = draw.maybe('rightside', True, False)
    draw.maybe('transpose', True, False)
    draw.maybe('alpha', 1.0, 0.5)
    return [
        Input(front + (n, n), 'lower', draw.flag(0.2)),
        Input(front + ((m, n) if right else (n, m))),
    ]


@_for('_linalg_syrk _linalg_gelqf')
def _(draw):
    n = draw.number(1, 3)
    return [Input(_front(draw) + (n, n + 1))]


@_for('_linalg_extractdiag _linalg_extracttrian')
def _(draw):
    draw.maybe('offset', 0, 0, 1, -1)
    return [Input(_front(draw) + (3, 3))]


@_for('_linalg_makediag')
def _(draw):
    draw.maybe('offset', 0, 0, 1, -1)
    return [Input(_front(draw) + (3,))]


@_for('_linalg_maketrian')
def _(draw):
    return [Input(_front(draw) + (6,))]


def _heads(draw):
    _single(draw)
    draw.attrs['heads'] = 2
    draw.longer = False


@_for('_contrib_interleaved_matmul_selfatt_qk')
def _(draw):
    _heads(draw)
    return [Input((draw.number(1, 3), draw.number(1, 2), 12))]


@_for('_contrib_interleaved_matmul_selfatt_valatt')
def _(draw):
    _heads(draw)
    steps, batch = draw.number(1, 3), draw.number(1, 2)
    return [Input((steps, batch, 12)), Input((2 * batch, steps, steps))]


@_for('_contrib_interleaved_matmul_encdec_qk')
def _(draw):
    _heads(draw)
    batch = draw.number(1, 2)
    return [Input((draw.number(1, 3), batch, 4)), Input((draw.number(1, 3), batch, 8))]


@_for('_contrib_interleaved_matmul_encdec_valatt')
def _(draw):
    _heads(draw)
    batch, long, steps = draw.number(1, 2), draw.number(1, 3), draw.number(1, 3)
    return [Input((long, batch, 8)), Input((2 * batch, steps, long))]


# --- random --------------------------------------------------------------------------------------


@_for('_sample_uniform _sample_normal _sample_gamma')
def _(draw):
    shape = draw.shape(1, 2)
    draw.maybe('shape', (2,), (1,), ())
    return [Input(shape, 'positive')] * 2


@_for('_sample_exponential _sample_poisson')
def _(draw):
    draw.maybe('shape', (2,), (1,), ())
    return [Input(draw.shape(1, 2), 'positive')]


@_for('_sample_multinomial')
def _(draw):
    draw.maybe('shape', (2,), (1,), ())
    draw.maybe('get_prob', True, False)
    return [Input((draw.number(1, 3), 2), 'half')]


@_for("""_random_uniform _random_normal _random_gamma _random_exponential _random_poisson
         _random_negative_binomial _random_generalized_negative_binomial""")
def _(draw):
    draw.attrs['shape'] = (2, 3)
    return []


@_for("""_random_pdf_uniform _random_pdf_normal _random_pdf_gamma
         _random_pdf_negative_binomial _random_pdf_generalized_negative_binomial""")
def _(draw):
    rows = draw.number(1, 3)
    return [Input((rows, 4), 'positive'), Input((rows,), 'unit'), Input((rows,), 'large')]


@_for('_random_pdf_exponential _random_pdf_poisson')
def _(draw):
    rows = draw.number(1, 3)
    return [Input((rows, 4), 'positive'), Input((rows,), 'positive')]


@_for('_random_pdf_dirichlet')
def _(draw):
    rows = draw.number(1, 3)
    return [Input((rows, 4, 2), 'half'), Input((rows, 2), 'positive')]


# --- images and boxes ----------------------------------------------------------------------------


@_for('BilinearSampler')
def _(draw):
    rows = draw.number(1, 2)
    return [Input((rows, 2, 4, 4)), Input((rows, 2, 3, 3), 'unit')]


@_for('GridGenerator')
def _(draw):
    _single(draw)
    if draw.flag(0.4):
        draw.attrs['transform_type'] = 'warp'
        return [Input((draw.number(1, 2), 2, 3, 3))]
    draw.attrs.update(transform_type='affine', target_shape=(3, 3))
    return [Input((draw.number(1, 2), 6))]


@_for('SpatialTransformer')
def _(draw):
    rows = draw.number(1, 2)
    draw.attrs.update(transform_type='affine', sampler_type='bilinear', target_shape=(3, 3))
    return [Input((rows, 2, 4, 4)), Input((rows, 6), 'unit')]


@_for('ROIPooling')
def _(draw):
    draw.attrs.update(pooled_size=(2, 2), spatial_scale=1.0)
    return [Input((draw.number(1, 2), 2, 4, 4)), Input((draw.number(1, 2), 5), 'index', top=1)]


@_for('_contrib_ROIAlign')
def _(draw):
    draw.attrs.update(pooled_size=(2, 2), spatial_scale=1.0)
    return [Input((draw.number(1, 2), 2, 4, 4)), Input((draw.number(1, 2), 5), 'index', top=1)]


@_for('Correlation')
def _(draw):
    rows = draw.number(1, 2)
    draw.attrs.update(kernel_size=1, max_displacement=1, pad_size=1)
    return [Input((rows, 2, 3, 3)), Input((rows, 2, 3, 3))]


@_for('_contrib_box_iou')
def _(draw):
    return [
        Input((draw.number(1, 3), 4), 'positive'),
        Input((draw.number(1, 3), 4), 'positive', draw.flag(0.3)),
    ]


@_for('_contrib_box_nms')
def _(draw):
    return [Input((draw.number(1, 2), draw.number(1, 3), 6), 'unit')]


@_for('_contrib_box_decode')
def _(draw):
    draw.longer, anchors = False, draw.number(1, 3)
    draw.maybe('clip', 1.0, -1.0)
    draw.maybe('format', 'corner', 'center')
    return [
        Input((draw.number(1, 2), anchors, 4)),
        Input((1, anchors, 4), 'positive', draw.flag(0.3)),
    ]


@_for('_contrib_box_encode')
def _(draw):
    rows, anchors, boxes = draw.number(1, 2), draw.number(1, 3), draw.number(1, 3)
    return [
        Input((rows, anchors)),
        Input((rows, anchors), 'index', top=boxes),
        Input((rows, anchors, 4), 'positive'),
        Input((rows, boxes, 4), 'positive'),
        Input((4,), shared=True),
        Input((4,), 'positive', True),
    ]


@_for('_contrib_MultiBoxPrior')
def _(draw):
    _single(draw)
    draw.maybe('sizes', (0.5,), (0.5, 0.3))
    draw.maybe('ratios', (1.0,), (1.0, 2.0))
    draw.maybe('clip', True, False)
    return [Input((draw.number(1, 2), 2, draw.number(1, 3), 2))]


@_for('_contrib_MultiBoxTarget')
def _(draw):
    _single(draw)
    rows, anchors = draw.number(1, 2), draw.number(1, 3)
    draw.longer = False
    return [
        Input((1, anchors, 4), 'positive', draw.flag(0.5)),
        Input((rows, draw.number(1, 2), 5), 'unit'),
        Input((rows, 3, anchors)),
    ]


@_for('_contrib_MultiBoxDetection')
def _(draw):
    _single(draw)
    rows, anchors = draw.number(1, 2), draw.number(1, 3)
    draw.longer = False
    return [
        Input((rows, 3, anchors), 'unit'),
        Input((rows, 4 * anchors)),
        Input((1, anchors, 4), 'positive', draw.flag(0.5)),
    ]


@_for('_contrib_PSROIPooling')
def _(draw):
    draw.attrs.update(spatial_scale=1.0, output_dim=2, pooled_size=2)
    return [Input((draw.number(1, 2), 8, 4, 4)), Input((draw.number(1, 2), 5), 'index', top=1)]


@_for('_contrib_RROIAlign')
def _(draw):
    draw.attrs.update(pooled_size=(2, 2), spatial_scale=1.0)
    return [Input((draw.number(1, 2), 2, 4, 4)), Input((draw.number(1, 2), 6), 'index', top=1)]


@_for('_contrib_hawkesll')
def _(draw):
    rows, marks, steps = draw.number(1, 2), draw.number(1, 3), draw.number(1, 3)
    return [
        Input((rows, marks), 'positive'),
        Input((marks,), 'positive', True),
        Input((marks,), 'positive', True),
        Input((rows, marks), 'positive'),
        Input((rows, steps), 'positive'),
        Input((rows, steps), 'index', dtype='int32', top=marks),
        Input((rows,), 'length', top=steps),
        Input((rows,), 'large'),
    ]


@_for('_image_random_flip_left_right _image_random_flip_top_bottom _image_random_lighting')
def _(draw):
    return [Input((4, 2, 3), 'positive')]


@_for("""_image_random_brightness _image_random_contrast _image_random_saturation
         _image_random_hue""")
def _(draw):
    draw.attrs.update(min_factor=0.5, max_factor=1.5)
    return [Input((4, 3, 3), 'positive')]


@_for('_image_random_color_jitter')
def _(draw):
    draw.attrs.update(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.1)
    return [Input((4, 3, 3), 'positive')]


@_for('_image_adjust_lighting')
def _(draw):
    draw.attrs['alpha'] = (0.1, 0.2, 0.3)
    return [Input((4, 3, 3), 'positive')]


@_for('_contrib_quantize')
def _(draw):
    _single(draw)
    return [Input(draw.shape()), Input((1,), 'unit', True), Input((1,), 'large', True)]


@_for('_image_to_tensor')
def _(draw):
    return [Input((4, 3, 3), 'positive')]


@_for('_image_flip_left_right _image_flip_top_bottom')
def _(draw):
    """Not of odd numbers, as MXNet leaves out what is in the middle."""
    return [Input((4, 2, 3), 'positive')]


@_for('_image_normalize')
def _(draw):
    draw.attrs.update(mean=(0.5,), std=(2.0,))
    return [Input((3, 4, 3))]


@_for('_image_resize')
def _(draw):
    draw.attrs['size'] = (2, 3)
    return [Input((4, 3, 3), 'positive')]


@_for('_image_crop')
def _(draw):
    draw.attrs.update(x=0, y=1, width=2, height=2)
    return [Input((4, 3, 3), 'positive')]


@_for('_contrib_count_sketch')
def _(draw):
    draw.attrs['out_dim'] = 3
    return [Input((2, 4)), Input((1, 4), 'index', True, top=3), Input((1, 4), 'index', True, top=2)]


@_for('_contrib_arange_like')
def _(draw):
    shape = draw.shape(1, 3)
    if draw.flag(0.7):
        draw.attrs['axis'] = draw.number(0, len(shape) - 1)
    return [Input(shape)]


@_for('_histogram')
def _(draw):
    draw.attrs.update(bin_cnt=3, range=(-1.0, 1.0))
    return [Input(draw.shape(1, 2))]
