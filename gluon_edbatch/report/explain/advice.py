"""Advice on what would help, as text."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

import numpy as np
from mxnet import gluon

from gluon_edbatch_core.schedule import get_scheduler

from ...execute.counts import EvaluationCounts
from ...ops.registry import Arithmetic, op_of
from ...subgraph.node_type import NodeType
from .differences import ARRAY, COLUMN, DATA, NUMBER_OF_ARRAYS, Difference
from .explanation import Cause

ROUNDS = (
    'These are rounds of net.batch or run_concurrently, as many as its longest sample waits: '
    'nothing to do, if one call of it has all samples, and a bare yield stands behind what later '
    'steps read, such as an encoder.'
)
FOR_ADDITIONS = (
    'Collect the values in a list and add them up by edb.add_n(values), which is one call whatever '
    'their number; or read no partial sum before the last one. Where the next step reads each sum '
    '(a recurrence), nothing is to be done.'
)
_OTHER_SCHEDULERS = 'sufficient', 'agenda', 'depth'  # those that learn nothing and take no seconds


def advice_for(cause: Cause, whole: bool = False) -> str:
    """Return advice against a cause; `whole` is for calls whose rows depend on each other."""
    return _WHOLE if whole and cause is Cause.SHAPE else _ADVICE[cause]


def advice_for_lengths(why: str, block: Optional[gluon.Block], shapes: Sequence[tuple]) -> str:
    """Return advice for calls of these shapes, which `why_not_padded` says are not padded."""
    known = [advice for phrase, advice in _BY_LENGTH.items() if phrase in why]
    if known:
        return known[0]
    if len({shape[0] for shape in shapes}) > 1:
        return _ALONG_ROWS
    if block is None:
        return _SENTENCES
    return (
        f'Sort samples by length, so that few lengths meet in a minibatch; or call that operator '
        f'outside of {block.name}, so that the rest is padded.'
    )


def advice_for_weight(found: Difference) -> str:
    """Return advice for calls that read different weights, or some of them data instead."""
    if DATA in found.values:
        return (
            'A learned vector among data is data as a row of an Embedding, or as an argument of a '
            'block: an operator takes the array of a parameter for a weight.'
        )
    return _ADVICE[Cause.WEIGHT]


def advice_for_argument(found: Difference, node_type: NodeType) -> str:
    """Return advice for calls that differ in an argument that is not an array."""
    operator, kinds = node_type.name, [argument.arena.dtype for argument in node_type.arguments]
    if COLUMN in found.values:
        return (
            'Nothing to do: the first number of a scope is compiled into its call, and all others '
            'are data of one batch.'
        )
    if found.what == NUMBER_OF_ARRAYS and op_of(operator).arithmetic is Arithmetic.SUM:
        return 'Add values up by edb.add_n(values): it is one type, whatever their number.'
    if found.what == NUMBER_OF_ARRAYS:
        return (
            'Give any number of values as one, edb.ragged(values), to a HybridBlock: softmax, sum, '
            'mean, max and batch_dot along axis 1 are one type there, whatever the number.'
        )
    if ARRAY in found.values:
        return f'Give {found.what} in all calls, or in none: for example ones for no mask.'
    if operator in _FOR_NUMBERS:
        return _FOR_NUMBERS[operator]
    if op_of(operator).number is not None and not any(np.issubdtype(k, np.floating) for k in kinds):
        return "Numbers beside whole numbers are compiled in: use y.astype('float32') there."
    return _ADVICE[Cause.ARGUMENT]


def advice_for_blocks(first: gluon.Block, second: gluon.Block) -> str:
    """Return advice for two blocks of one class."""
    own, others = (
        {id(parameter) for parameter in block.collect_params().values()}
        for block in (first, second)
    )
    if own != others:
        return (
            'Blocks with parameters of their own cannot share a batch. If they are to compute '
            'the same, make one block, once, and call that.'
        )
    return (
        f'{first.name} and {second.name} have {"the same" if own else "no"} parameters: make '
        f'one block, once, and call that.'
    )


def advice_for_alone(cause: Cause, node_type: NodeType, block: Optional[gluon.Block]) -> str:
    """Return advice for calls that run one by one."""
    if node_type.eager:
        return 'Use a loss of gluon.loss, whose gradient is that of its value: it is batched.'
    if not node_type.options.whole_values:
        return (
            'Leave the compile option whole_values on: it batches such calls where their '
            'shapes agree.'
        )
    if cause is Cause.NO_RULE:
        instead = 'Use operators that have a rule (gluon_edbatch/ops/table.py lists them)'
        if block is None:
            return f'{instead}, or declare one there.'
        return (
            f'{instead}, or declare one there; or call this operator outside of {block.name}, '
            f'so that the rest of the block is batched.'
        )
    if 'dot' in node_type.graph.subgraph.operators and 'dot' in node_type.reason:
        return _PRODUCTS
    if 'different numbers of rows' in node_type.reason:
        return (
            'Give all arguments of a call equally many rows along axis 0: a vector that '
            'belongs to one row is (1, k), not (k,).'
        )
    return (
        'Axis 0 is the batch axis: let operators work along the others, add a parameter (1, …) by '
        'broadcast_add, and leave the number '
        'of rows open in reshapes (-1 or 0).'
    )


def advice_for_scheduler(counts: list[EvaluationCounts]) -> str:
    """Return advice on the scheduler, after trying the others."""
    taken = sum(len(count.schedule) for count in counts)
    fewest, name = min(
        (sum(len(get_scheduler(name).schedule(replace(count.graph))) for count in counts), name)
        for name in _OTHER_SCHEDULERS
    )
    if fewest < taken:
        advice = (
            f'batching(scheduler={name!r}) would take {fewest} batches for all that took {taken}.'
        )
    else:
        advice = (
            f'None of {", ".join(_OTHER_SCHEDULERS)} takes fewer; the lower bound cannot '
            f"always be reached. 'beam' searches longer."
        )
    unseen = sum(count.schedule.unseen_states for count in counts)
    if unseen:
        advice += (
            f' The policy met {unseen} states that it had not learned: compare a later '
            f'minibatch, or learn on more (gluon_edbatch.learn_policy).'
        )
    return advice


_SENTENCES = 'Put what works on whole sentences into one HybridBlock: its calls are padded.'
_ALONG_ROWS = (
    'These values lie along axis 0, the batch axis, which is never padded: give them as '
    'edb.ragged(values), or as one value (1, length, …), to a HybridBlock that works along axis 1.'
)
_BY_LENGTH = {
    'RNN': 'An RNN layer batches over lengths unless it gets states that are not zero and gives '
    'states, or drops values between layers that go both ways. Call a cell, as gluon.rnn.LSTMCell, '
    'step by step, or sort samples.',
    'Convolution': 'A convolution is padded if it has stride 1 along the axis that differs. Pad '
    'samples to few lengths yourself, or sort them by length.',
    'several rows': 'Give a call one sample, (1, length, …).',
    'over all rows': 'What is reduced lies along axis 0, the batch axis: give such values as '
    'edb.ragged(values) to a block that reduces axis 1, as SoftmaxCrossEntropyLoss does in '
    'loss(edb.ragged(scores), edb.ragged(labels)); or give each row a call of its own, and add '
    'them up by edb.add_n.',
    'several axes': 'Give (1, length) for each sample; make what has two such axes in the block.',
    'equally long': 'Give these arguments one length in each call.',
    'buckets': 'Leave the compile option buckets on.',
}
_SLICES = (
    'Where a slice y[:, i:j] of up to 16 positions begins is data. Wider slices, and slices of '
    'different widths, have different shapes.'
)
_FOR_NUMBERS = {
    'clip': 'Write mx.nd.minimum(mx.nd.maximum(y, low), high), where numbers are data.',
    'softmax': 'Write mx.nd.softmax(y / temperature), where the number is data.',
    'log_softmax': 'Write mx.nd.log_softmax(y / temperature), where the number is data.',
    'slice_axis': _SLICES,
    'slice': _SLICES,
}
_PRODUCTS = (
    'Products keep axis 0 as the batch axis if x is (n, k): a layer (Dense), or '
    'mx.nd.FullyConnected, multiplies by a weight. For a bilinear product, flatten the tensor into '
    'the weight of a Dense, and use y.reshape((-1, rows, columns)) and '
    'mx.nd.batch_dot. Do not write reshape(-1), which joins the rows of a batch.'
)
_WHOLE = (
    'Rows of these calls depend on each other, so all axes must agree. Pad to one shape, or '
    'to few; or let operators work along other axes than 0, and leave the number of rows '
    'open in reshapes (-1 or 0).'
)
_ADVICE = {
    Cause.SHAPE: 'Only axis 0 (n) may differ within a batch. Put what varies there, or into '
    'gluon_edbatch.ragged; or pad to one shape, or to few.',
    Cause.DTYPE: 'Cast to one dtype where the values come from.',
    Cause.CONTEXT: 'Put all arrays of a scope on one context.',
    Cause.WEIGHT: 'Arrays with a gradient, weights of layers and large arrays are weights, each '
    'one for itself: use one array in all calls, not copies or slices of it.',
    Cause.ARGUMENT: 'What is no array is compiled into a call, but for operands (y * 0.5) and '
    'single positions (y[:, i]). Pass it as an array or, to a block, as a number that it computes '
    'with; or have few different values.',
    Cause.ATTRIBUTE: 'Change blocks between minibatches; or pass what changes as an argument.',
    Cause.LENGTHS: 'Padding may show in the result, so only calls with equally many values are '
    'batched. Let the block end in a reduction along the axis of the ragged values (sum, mean, '
    'max, batch_dot), after operators that treat all values alike or divide among them '
    '(softmax); return what has that axis as axis 1, computed value by value or by a softmax; '
    'give ragged arguments that meet equally many values.',
    Cause.PADDED: 'Nothing to do here. See the operators that read these values: those that batch '
    'only calls of one length take sentences apart. CompileOptions(buckets=False) packs none.',
    Cause.MODE: 'Enter autograd.record(), pause() and train_mode() around all calls, not around '
    'some of them.',
    Cause.AT_ONCE: 'Nothing to do. CompileOptions(at_once=False) runs large calls in batches.',
    Cause.READ_EARLY: 'Look at values (asnumpy, asscalar, if) after the scope. Where the next step '
    'depends on them, call net.batch(samples) or gluon_edbatch.run_concurrently: all samples reach '
    'that step, and one evaluation serves all of them.',
    Cause.DEPENDENCY: 'A larger minibatch makes such batches larger, not more. To have fewer of '
    'them, shorten the longest chain, or sort samples by its length.',
    Cause.ASKED_APART: 'Ask for all values at once: gluon_edbatch.forward([...]), stack or concat.',
}
