"""Calls of hybridized blocks as Gluon makes them, without its Python between.

Gluon looks at the context of each array and asks for each parameter's data by three functions: for
a small layer that takes longer than to run it. Compiled by Cython where a compiler is present.
"""

from typing import Any, List, Optional, Sequence

from mxnet.gluon import HybridBlock, Parameter
from mxnet.gluon.parameter import Constant
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array

from . import running
from .running import IN_C

running.prepare(IN_C[0], IN_C[1], IN_C[2], IN_C[3], IN_C[4], IN_C[5])
CALL_CACHED_OP = HybridBlock._call_cached_op
_FORWARD = HybridBlock.forward
_PARAMETERS = Parameter, Constant


class NotRun:
    """Stands for the result of a call that is left to Gluon."""


class HybridCall:
    """Calls of a block that is hybridized and whose graph is there.

    Parameters
    ----------
    block : gluon.HybridBlock
    """

    def __init__(self, block: HybridBlock):
        self._cached_op = block._cached_op
        self._in_format, self._out_format = block._in_format, block._out_format
        # of each input its place among the arguments, or what the parameter has
        self._places = [place if given else -1 for given, place in block._cached_op_args]
        self._parameters: List[Any] = [
            None if given else parameter.__dict__ for given, parameter in block._cached_op_args
        ]

    def is_of(self, state) -> bool:
        """Whether it runs the graph that a block with these attributes has now."""
        return (
            state['_cached_op'] is self._cached_op
            and state['_active'] is True
            and state['_callback'] is None
        )

    def is_whole(self, block, state) -> bool:
        """Whether that is all that a call of it does."""
        return (
            type(block).forward is _FORWARD
            and 'forward' not in state
            and not (state['_forward_hooks'] or state['_forward_pre_hooks'])
        )

    def run(self, args, cls):
        """What a call gives, with dense arrays of class `cls`; `NotRun` if Gluon is to see to it:
        it has more to say of other arguments than there were at first."""
        given: List[NDArray] = []
        if is_np_array() or not self._append(args, self._in_format, given):
            return NotRun
        if len(given) > 1 and not running.same_context(given):
            return NotRun
        inputs = []
        for number in range(len(self._places)):
            place = self._places[number]
            if place >= 0:
                inputs.append(given[place])
                continue
            state = self._parameters[number]
            arrays = state['_data']
            if type(arrays) is not list or len(arrays) != 1:
                return NotRun
            inputs.append(arrays[0])
        results = running.run_cached(self._cached_op, inputs, cls)
        if self._out_format == 0:
            return results[0]
        return _grouped(self._out_format, iter(results))

    def _append(self, args, form, given):
        """Append the arrays among the arguments; gives whether they are structured so."""
        if len(args) != len(form):
            return False
        for arg, kind in zip(args, form):
            if isinstance(arg, NDArray):
                if kind != 0:
                    return False
                given.append(arg)
            elif arg is None:
                if kind != -1:
                    return False
            elif (
                not isinstance(arg, (list, tuple))
                or type(kind) is not list
                or not self._append(arg, kind, given)
            ):
                return False
        return True


def hybrid_call(block: Any) -> Optional[HybridCall]:
    """What runs a block's calls; None if Gluon is to."""
    state = block.__dict__
    if (
        not isinstance(block, HybridBlock)
        or state.get('_active') is not True
        or state.get('_cached_op') is None
        or state['_callback'] is not None
        or type(block)._call_cached_op is not CALL_CACHED_OP
        or block._cached_op.is_np_sym
        or type(block._in_format) is not list
        or not _is_of(block._in_format, (0, -1))
        or not _is_of(block._out_format, (0,))
    ):
        return None
    for given, parameter in block._cached_op_args:
        if not given and (type(parameter) not in _PARAMETERS or parameter._stype != 'default'):
            return None
    return HybridCall(block)


def _is_of(form: Any, kinds: Sequence[int]) -> bool:
    """Whether there are but lists and these: 0 stands for an array, -1 for None."""
    if type(form) is list:
        return all([_is_of(each, kinds) for each in form])
    return form in kinds


def _grouped(form, results):
    """The results as the block returned them when it was hybridized."""
    if type(form) is list:
        return [_grouped(each, results) for each in form]
    return next(results)
