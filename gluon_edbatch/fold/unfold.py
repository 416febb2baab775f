"""`Unfold`: the interface of `Fold`, computed eagerly."""

from collections.abc import Sequence
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from ..mx.parameters import context_of
from .fold import Fold
from .handles import Handle, like, part_of
from .joined import indices, joined


class Result(Handle):
    """A result of an `Unfold`'s call; `value` is what the call returned, or a part of it."""

    __slots__ = ('value', 'batch', 'batch_axis')

    def __init__(self, value: Any, batch_axis: int, batch: bool = True):
        self.value = value
        self.batch_axis = batch_axis
        self.batch = batch

    def _part(self, step: Any) -> 'Result':
        return Result(
            part_of(self.value, step), self.batch_axis, self.batch if type(step) is tuple else True
        )

    def __repr__(self) -> str:
        return repr(self.value)


class Unfold(Fold):
    """Replace `Fold` for debugging: every call runs eagerly and alone.

    Errors come from the line that noted the call, and handles show their values.

    Parameters
    ----------
    block : Block or another object, optional
        Object whose methods `add` calls, and which `apply` must get.
    ctx : mxnet.Context, optional
        Device of index arrays, and of arrays that the calls make. The default is that of the
        block's parameters, else MXNet's current context.
    volatile : bool, default False
        Compute without gradients, whatever autograd's state.
    cuda : bool, default False
        Whether to compute on the first GPU (see `cuda`).

    Raises
    ------
    TypeError
        If `ctx` is not a context.
    RuntimeError
        If there is no GPU for `cuda`.

    Examples
    --------
    >>> fold = edb.Unfold(net)   # in the place of edb.Fold()
    >>> score = fold.add('forward', sentence)
    >>> print(score)   # its value
    >>> found, = fold.apply(net, [[score]])
    """

    def __init__(
        self,
        block: Any = None,
        ctx: Optional[mx.Context] = None,
        volatile: bool = False,
        cuda: bool = False,
    ):
        super().__init__(ctx, volatile=volatile, cuda=cuda)
        self.block = block

    def _note(self, batch_axis: int, op: Any, op_key: Any, args: Sequence[Any]) -> Handle:
        """Run the call that was passed to `add`, and return its result."""
        named = isinstance(op, str)
        values = [_value(arg, self._index if named else None) for arg in args]
        with self._placed(self._ctx()):
            return Result((getattr(self.block, op) if named else op)(*values), batch_axis)

    def _index(self, number: int) -> NDArray:
        return indices([number], self._ctx())

    def _ctx(self) -> Optional[mx.Context]:
        return self.ctx or context_of(self.block)

    def __call__(self, nodes: Sequence[Sequence[Any]], reset: bool = True) -> list[NDArray]:
        """Return the results of each list as one array (see `Fold`)."""
        lists = [list(items) for items in nodes]
        return [
            joined(items, [_value(item, None) for item in items], self._ctx()) for items in lists
        ]

    def apply(self, block: Any, nodes: Sequence[Sequence[Any]]) -> list[NDArray]:
        """Return the results of each list as one array.

        Parameters
        ----------
        block : Block
            The block that the constructor got.
        nodes : list of list
            Lists of handles, as for `Fold`.

        Returns
        -------
        list of NDArray
            For each list, its results concatenated along their batch axis.

        Raises
        ------
        ValueError
            If `block` is not the constructor's.
        RecordError
            If a list is empty, or its results cannot be joined.
        """
        if block is not self.block:
            raise ValueError(
                f'apply() of {type(block).__name__}: an Unfold computes eagerly, so '
                f'it must be made with the block that is applied, Unfold(block)'
            )
        return self(nodes)


def _value(arg: Any, integer: Optional[Callable[[int], NDArray]]) -> Any:
    """Return an argument with values in place of handles, and ints as arrays if asked."""
    if isinstance(arg, Result):
        return arg.value
    if isinstance(arg, (list, tuple)) or type(arg) is dict:
        items = arg.values() if type(arg) is dict else arg
        return like(arg, [_value(item, integer) for item in items])
    return integer(arg) if integer is not None and type(arg) is int else arg
