"""`Unfold`: the interface of `Fold`, computed eagerly."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from ..mx.parameters import context_of
from .fold import Fold
from .handles import Handle, part_of, resolve
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
        values = resolve(args, {}, self._argument if named else _value)
        with self._placed(self._ctx()):
            return Result((getattr(self.block, op) if named else op)(*values), batch_axis)

    def _argument(self, item: Any) -> Any:
        """Return an argument of `add`: an int is an index."""
        return indices([item], self._ctx()) if type(item) is int else _value(item)

    def _ctx(self) -> Optional[mx.Context]:
        return self.ctx or context_of(self.block)

    def __call__(self, nodes: Sequence[Sequence[Any]], reset: bool = True) -> list[NDArray]:
        """Return the results of each list as one array (see `Fold`)."""
        lists = [list(items) for items in nodes]
        return [joined(items, resolve(items, {}, _value), self._ctx()) for items in lists]

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


def _value(item: Any) -> Any:
    return item.value if isinstance(item, Result) else item
