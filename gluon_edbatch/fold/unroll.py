"""Unroll recurrent cells in a fold."""

from collections.abc import Sequence
from typing import Any, Optional, Union

import mxnet as mx
from mxnet.gluon.rnn import RecurrentCell
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from .fold import Fold
from .handles import Handle


def fold_unroll(
    cell: RecurrentCell,
    fold: Fold,
    length: int,
    inputs: Any,
    begin_state: Optional[Sequence[Any]] = None,
    layout: str = 'NTC',
    merge_outputs: Optional[bool] = None,
    valid_length: Optional[Any] = None,
) -> tuple[Union[Handle, list[Handle]], list[Handle]]:
    """Note the steps of ``cell.unroll``; each step of each sample is a call that can be batched.

    Parameters
    ----------
    cell : RecurrentCell
        Any cell of Gluon.
    fold : Fold
        Where the calls are noted.
    length : int
        Number of steps.
    inputs : NDArray, Handle, or list of them
        One array, (batch_size, length, ...) for the layout 'NTC' and (length, batch_size, ...) for
        'TNC'; or a list of `length` arrays (batch_size, ...).
    begin_state : list of (NDArray or Handle), optional
        States before the first step, by default those of ``cell.begin_state``.
    layout : str, default 'NTC'
        Layout of `inputs` and of merged outputs.
    merge_outputs : bool, optional
        True: the outputs are one array in this layout. Otherwise they are a list, for None too.
    valid_length : NDArray or Handle, optional
        (batch_size,), how many steps each row has. Outputs of other steps are zero, and states are
        those after the last valid one.

    Returns
    -------
    outputs : list of Handle, or Handle
        Outputs of each step, (batch_size, hidden). Merged outputs have `inputs`' layout, with
        hidden in place of the axes after the first two.
    states : list of Handle
        States after the last step, with the shapes of ``cell.state_info()``.

    Raises
    ------
    TypeError
        If `cell` is not a recurrent cell.
    ValueError
        If `layout` is neither.
    RecordError
        If `inputs` do not have `length` steps.
    """
    if not isinstance(cell, RecurrentCell):
        raise TypeError(f'fold_unroll() takes a recurrent cell of Gluon, not {brief(cell)}')
    if layout not in ('NTC', 'TNC'):
        raise ValueError(f"layout is 'NTC' or 'TNC', not {brief(layout)}")
    if isinstance(inputs, (list, tuple)):
        inputs = list(inputs)
        if len(inputs) != length:
            raise RecordError(f'{len(inputs)} inputs for {length} steps')
    elif isinstance(inputs, NDArray) and inputs.shape[layout.index('T')] != length:
        raise RecordError(f'inputs of shape {inputs.shape}, {layout}, for {length} steps')
    if begin_state is None:
        begin_state = _begin_state(cell, inputs, layout)
    node = fold.record(
        0, cell.unroll, length, inputs, begin_state, layout, bool(merge_outputs), valid_length
    )
    outputs, states = node.split(2)
    parts = list(states.split(len(cell.state_info())))
    if not merge_outputs:
        return list(outputs.split(length)), parts
    return fold.record(layout.index('N'), _same, outputs), parts


def _begin_state(cell: RecurrentCell, inputs: Any, layout: str) -> Optional[list[NDArray]]:
    """Return the initial states of ``cell.unroll``, if the inputs are known already. Inside the
    scope, ``begin_state`` would change a counter of the cell, and so its fingerprint."""
    first, axis = (inputs[0], 0) if isinstance(inputs, list) else (inputs, layout.index('N'))
    if not isinstance(first, NDArray):
        return None
    cell.reset()
    with first.ctx:
        states = cell.begin_state(batch_size=first.shape[axis], func=mx.nd.zeros)
    cell.reset()
    return states


def _same(value: Any) -> Any:
    return value
