"""Which Symbols may be batched: does each row of the result depend on its own row only?

Every operator that occurs in a static subgraph is looked up in a table of rules. An entry of the
graph is *batched* if its axis 0 runs over the rows of the batch, in order, with a whole number of
positions for each row; it is *constant* if it does not depend on the inputs at all. Shapes are
inferred for two numbers of rows, so a reshape that names the batch size, or a mean over all
rows, shows itself without anything being run.
"""
from enum import Enum
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx

from .ir import Attrs, Shape, Subgraph
from .noise import draws

_TRIAL_ROWS = (7, 11)  # primes, so that no other axis has them by accident


class Verdict(Enum):
    """Outcome of the analysis."""

    PROVED = 'proved'
    UNKNOWN = 'unknown'      # an operator without a rule: compare once with a run alone
    DEPENDENT = 'dependent'  # rows depend on each other: never batch


class RowwiseResult(NamedTuple):
    """What was found of a Symbol.

    Attributes
    ----------
    verdict : Verdict
    reason : str
        The operator and the rule it breaks, or the operators without a rule.
    factors : list of int
        Rows of each output per row of input (if not dependent).
    """

    verdict: Verdict
    reason: str
    factors: List[int]


class Node(NamedTuple):
    """One operator application, as a rule sees it."""

    op: str
    attrs: Attrs
    batched: List[bool]
    inputs: List[Shape]
    outputs: List[Shape]


class _Dependent(Exception):
    pass


def analyse(graph: Subgraph, row_shapes: Dict[str, Shape], training: bool) -> RowwiseResult:
    """Analyse a subgraph whose inputs `row_shapes` (name -> shape without axis 0) are batched.

    All other variables (parameters, auxiliary states) must have shapes known to MXNet.
    """
    try:
        trials = [_infer(graph, row_shapes, rows) for rows in _TRIAL_ROWS]
    except mx.base.MXNetError as error:
        return RowwiseResult(Verdict.DEPENDENT, 'its shapes do not fit a batch of '
                             f'{_TRIAL_ROWS[0]} rows: {_first_line(error)}', [])
    unknown: List[str] = []
    batched: Dict[int, bool] = {}  # nodes
    try:
        for index, node in enumerate(graph.nodes):
            if node.is_variable:
                batched[index] = node.name in row_shapes
                continue
            view = Node(node.op, node.attrs, [batched[entry.node] for entry in node.inputs],
                        [trials[0][entry.node][entry.output] for entry in node.inputs],
                        trials[0][index])
            result = any(view.batched) and _apply(view, training, unknown)
            if not result and draws(view.op, view.attrs, training):
                raise _Dependent(f'{view.op} draws noise that depends on no argument, which is to '
                                 f'be another for each call')
            if result:
                for shapes in zip(*(trial[index] for trial in trials)):
                    _factor(view.op, *shapes)
            batched[index] = result
        factors = []
        for index, output in graph.heads:
            if not batched[index]:
                raise _Dependent('a result does not depend on the inputs')
            factors.append(_factor('result', *(trial[index][output] for trial in trials)))
    except _Dependent as dependent:
        return RowwiseResult(Verdict.DEPENDENT, str(dependent), [])
    if unknown:
        names = ', '.join(sorted(set(unknown)))
        return RowwiseResult(Verdict.UNKNOWN, f'no batching rule is declared for {names}', factors)
    return RowwiseResult(Verdict.PROVED, '', factors)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if 'Error in operator' in line]
    return (lines or str(error).splitlines() or [''])[0].strip()[:200]


def _infer(graph: Subgraph, row_shapes: Dict[str, Shape], rows: int) -> List[List[Shape]]:
    found = graph.infer({name: (rows,) + shape for name, shape in row_shapes.items()})
    if found is None:
        raise mx.base.MXNetError('shapes cannot be inferred')
    return found


def _factor(op: str, first: Shape, second: Shape) -> int:
    """How many positions on axis 0 each row of the batch has."""
    factors = [divmod(shape[0], rows) for shape, rows in zip((first, second), _TRIAL_ROWS)]
    if factors[0] != factors[1] or factors[0][1] or not factors[0][0]:
        raise _Dependent(f'{op} does not keep axis 0 as the batch axis')
    return factors[0][0]


def _apply(node: Node, training: bool, unknown: List[str]) -> bool:
    if node.op == 'BatchNorm':
        if training and not node.attrs.flag('use_global_stats'):
            raise _Dependent('BatchNorm in training mode takes its statistics over the batch')
        if node.attrs.integer('axis', 1) % len(node.inputs[0]) == 0:
            raise _Dependent('BatchNorm over axis 0')
        return True
    rule = RULES.get(node.op)
    if rule is None:
        unknown.append(node.op)
    elif not rule(node):
        raise _Dependent(f'{node.op}{_shown(node)} mixes the rows of the batch')
    return True


def _shown(node: Node) -> str:
    shown = ', '.join(f'{key}={value}' for key, value in node.attrs.items()
                      if key in ('axis', 'dim', 'shape', 'axes', 'begin', 'end', 'transpose_a',
                                 'transpose_b', 'dim1', 'dim2'))
    return f'({shown})' if shown else ''


# --- rules: True if a batched input gives a batched output, row by row ---------------------------

def _any(node: Node) -> bool:
    return True


def _several_axes(node: Node) -> bool:
    return len(node.inputs[0]) > 1  # depends on the length of the last


def _first_only(node: Node) -> bool:
    """The first input is batched, the others (weights) are not."""
    return node.batched[0] and not any(node.batched[1:])


def _all_batched(node: Node) -> bool:
    return all(node.batched) and len({shape[0] for shape in node.inputs}) == 1


def _elementwise(node: Node) -> bool:
    """Right-aligned broadcasting leaves axis 0 of every batched input where it is."""
    rank, rows = len(node.outputs[0]), node.outputs[0][0]
    for batched, shape in zip(node.batched, node.inputs):
        if batched and (len(shape) != rank or shape[0] != rows):
            return False
        if not batched and len(shape) == rank and shape[0] != 1:
            return False
    return True


def _other_axis(key: str, default: Optional[int]) -> Callable[[Node], bool]:
    """Works along one axis, which must not be axis 0; all inputs are batched."""
    def rule(node: Node) -> bool:
        axis = node.attrs.integer(key, default)
        return axis is not None and axis % len(node.inputs[0]) != 0 and _all_batched(node)
    return rule


def _normalised(key: str, default: int) -> Callable[[Node], bool]:
    def rule(node: Node) -> bool:
        axis = node.attrs.integer(key, default)
        return axis % len(node.inputs[0]) != 0 and _first_only(node)
    return rule


def _reduction(node: Node) -> bool:
    rank = len(node.inputs[0])
    axes = {axis % rank for axis in node.attrs.integers('axis')}
    if node.attrs.flag('exclude'):
        return bool(axes) and 0 in axes
    return bool(axes) and 0 not in axes


def _stack(node: Node) -> bool:
    return node.attrs.integer('axis', 0) % len(node.outputs[0]) != 0 and _all_batched(node)


def _slice(node: Node) -> bool:
    begin, end, step = (node.attrs.integers(key) or (None,) for key in ('begin', 'end', 'step'))
    return begin[0] in (None, 0) and end[0] is None and step[0] in (None, 1)


def _split(node: Node) -> bool:
    return node.attrs.integer('axis', 1) % len(node.inputs[0]) != 0


def _upsampling(node: Node) -> bool:
    """Images of several sizes are put side by side or added; what is learnt is a kernel."""
    return _first_only(node) if node.attrs.get('sample_type') == 'bilinear' else all(node.batched)


def _split_v2(node: Node) -> bool:
    return node.attrs.integer('axis', 1) % len(node.inputs[0]) != 0


def _transpose(node: Node) -> bool:
    axes = node.attrs.integers('axes')
    return bool(axes) and axes[0] == 0


def _swapaxes(node: Node) -> bool:
    rank = len(node.inputs[0])
    axes = [node.attrs.integer(key, 0) % rank for key in ('dim1', 'dim2')]
    return 0 not in axes or axes[0] == axes[1]


def _expand_dims(node: Node) -> bool:
    return node.attrs.integer('axis', 0) % len(node.outputs[0]) != 0


def _squeeze(node: Node) -> bool:
    axes = node.attrs.integers('axis')  # without axes, a batch of one row would lose its axis 0
    return bool(axes) and 0 not in {axis % len(node.inputs[0]) for axis in axes}


def _dot(node: Node) -> bool:
    return (node.batched == [True, False] and len(node.inputs[0]) >= 2
            and not node.attrs.flag('transpose_a'))


def _batch_dot(node: Node) -> bool:
    return _all_batched(node) and all(len(shape) >= 3 for shape in node.inputs)


def _take(node: Node) -> bool:
    if node.batched == [False, True]:
        return node.attrs.integer('axis', 0) == 0
    return (node.batched == [True, False]
            and node.attrs.integer('axis', 0) % len(node.inputs[0]) != 0)


def _embedding(node: Node) -> bool:
    return node.batched == [True, False]


def _pick(node: Node) -> bool:
    axis = node.attrs.integer('axis', -1)
    return axis is not None and axis % len(node.inputs[0]) != 0 and _all_batched(node)


def _same_rows(node: Node) -> bool:
    return all(node.batched) and node.inputs[0][0] == node.inputs[1][0]


def _reverse(node: Node) -> bool:
    return 0 not in {axis % len(node.inputs[0]) for axis in node.attrs.integers('axis') or (0,)}


def _dropout(node: Node) -> bool:
    return 0 not in (node.attrs.integers('axes'))  # else all rows would share one mask


def _sequence(node: Node) -> bool:
    return node.attrs.integer('axis', 0) == 1 and all(node.batched)


def _l2(node: Node) -> bool:
    return node.attrs.get('mode', 'instance') in ('instance', 'channel', 'spatial')


def _along(default: Optional[int]) -> Callable[[Node], bool]:
    """Works along one axis of its only input; without one, on all as one."""
    def rule(node: Node) -> bool:
        axis = node.attrs.integer('axis', default)
        return axis is not None and axis % len(node.inputs[0]) != 0
    return rule


def _broadcast_to(node: Node) -> bool:
    shape = node.attrs.integers('shape')
    return bool(shape) and len(shape) == len(node.inputs[0]) and shape[0] == 0


def _broadcast_axis(node: Node) -> bool:
    axes = node.attrs.integers('axis')
    return 0 not in {axis % len(node.inputs[0]) for axis in axes}


def _table(rule: Callable[[Node], bool], names: str) -> Dict[str, Callable[[Node], bool]]:
    return dict.fromkeys(names.split(), rule)


UNARY = '''
    abs sign round rint ceil floor trunc fix square sqrt rsqrt cbrt rcbrt exp log log10 log2 log1p
    expm1 sin cos tan arcsin arccos arctan degrees radians sinh cosh tanh arcsinh arccosh arctanh
    gamma gammaln erf erfinv relu sigmoid hard_sigmoid softsign reciprocal negative logical_not
    _copy identity BlockGrad make_loss MakeLoss Cast cast clip smooth_l1 Activation
    zeros_like ones_like _plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar
    _rdiv_scalar _mod_scalar _rmod_scalar _power_scalar _rpower_scalar _maximum_scalar
    _minimum_scalar _hypot_scalar _equal_scalar _not_equal_scalar _greater_scalar
    _greater_equal_scalar _lesser_scalar _lesser_equal_scalar _logical_and_scalar
    _logical_or_scalar _logical_xor_scalar amp_cast isnan isinf isfinite
    stop_gradient _contrib_round_ste _contrib_sign_ste
    _contrib_gradientmultiplier _contrib_quadratic one_hot
'''
BINARY = '''
    elemwise_add elemwise_sub elemwise_mul elemwise_div _grad_add _equal _not_equal _greater
    _greater_equal _lesser _lesser_equal _maximum _minimum _mod _power _hypot _logical_and
    _logical_or _logical_xor _plus _minus _mul _div _add _sub broadcast_add broadcast_sub
    broadcast_mul broadcast_div broadcast_mod broadcast_power broadcast_maximum broadcast_minimum
    broadcast_hypot broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal
    broadcast_lesser broadcast_lesser_equal broadcast_logical_and broadcast_logical_or
    broadcast_logical_xor broadcast_plus broadcast_minus add_n ElementWiseSum
'''
RULES: Dict[str, Callable[[Node], bool]] = {
    **_table(_any, UNARY),
    **_table(_elementwise, BINARY),
    **_table(_first_only, '''FullyConnected Convolution Deconvolution Pooling GroupNorm
                             InstanceNorm LeakyReLU Pad pad LRN depth_to_space
                             space_to_depth im2col _contrib_AdaptiveAvgPooling2D
                             _contrib_BilinearResize2D'''),
    'UpSampling': _upsampling,
    **_table(_reduction, 'sum mean prod nansum nanprod max min norm sum_axis max_axis min_axis'),
    **_table(_normalised('axis', -1), 'softmax log_softmax softmin LayerNorm'),
    **_table(_along(None), 'argmax argmin'), **_table(_along(-1), 'argsort sort topk'),
    **_table(_other_axis('dim', 1), 'Concat concat'),
    **_table(_other_axis('axis', None), 'slice_axis'),
    **_table(_split, 'SliceChannel split'),
    # Rows stay in order and together; that each keeps a whole number of positions, _factor checks.
    **_table(_any, 'Reshape reshape Flatten flatten argmax_channel reshape_like'),
    **_table(_same_rows, 'broadcast_like slice_like'),
    **_table(_sequence, 'SequenceMask SequenceLast SequenceReverse'),
    **_table(_any, '_random_uniform_like _random_normal_like _random_gamma_like'),
    '_contrib_div_sqrt_dim': _several_axes,
    'stack': _stack, 'slice': _slice, '_split_v2': _split_v2, 'transpose': _transpose,
    'SwapAxis': _swapaxes, 'swapaxes': _swapaxes, 'expand_dims': _expand_dims,
    'squeeze': _squeeze, 'dot': _dot, 'batch_dot': _batch_dot, '_linalg_gemm2': _batch_dot,
    'take': _take, 'Embedding': _embedding, 'pick': _pick, 'L2Normalization': _l2,
    'where': _all_batched, 'reverse': _reverse, 'Dropout': _dropout, 'broadcast_to': _broadcast_to,
    'broadcast_axis': _broadcast_axis, 'broadcast_axes': _broadcast_axis,
}
