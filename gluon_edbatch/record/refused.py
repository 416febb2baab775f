"""Explain which arguments a block or an operator cannot take, and what to write instead."""

import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Optional

from mxnet import gluon

from gluon_edbatch_core.short_repr import brief

from ..subgraph.trace import WITHOUT_ARRAY, argument_names, describe
from .calls import NUMBERS
from .inputs import is_array
from .sites import Site, site_above

# What MXNet says of an argument that is no array; it says which only where it is an operator's.
_FOR_NONE = ('inputs, but got', WITHOUT_ARRAY)
_NO_ARRAY = (
    'there must be one NDArray or one Symbol in the input',
    'must be Symbol instances',
    'must have NDArray type',
    *_FOR_NONE,
)
_call_code = gluon.Block.__call__.__code__
model_codes: set[CodeType] = set()  # of what calls a model for one sample (see `mixin`)


class ModelCall(NamedTuple):
    """The user's call of a model for one sample."""

    model: gluon.Block
    args: tuple[Any, ...]
    site: Site


def refused_call(
    block: gluon.Block, args: Sequence[Any], error: BaseException, call: Optional[ModelCall]
) -> Optional[str]:
    """Explain why a block failed with `error` if an argument is not an array, else return None.
    `call` is the model's call around it."""
    blamed = _blamed(args, error)
    if not blamed:
        return None
    names = argument_names(block, len(args))
    if getattr(block, 'values_of_child', 0) and len(args) == 2:
        names = ['x', 'children']
        if not isinstance(args[1], (list, tuple)):
            return f'{describe(block)} takes a list of children, [] for none, not {brief(args[1])}'
    text = _refused(describe(block), [(names[position], args[position]) for position in blamed])
    text += _unlike_mxnet(error)
    if (
        call is not None
        and any(isinstance(args[position], (list, tuple)) for position in blamed)
        and any(isinstance(arg, (list, tuple)) for arg in call.args)
    ):
        text += (
            f'\n  A model is called with one sample: if {brief(call.args[0])}, which '
            f'{describe(call.model)} was called with at {call.site}, is a list of samples, '
            f'write net.batch(samples), or [net(sample) for sample in samples] in a scope'
        )
    return text


def refused_operands(name: str, args: Sequence[Any], error: BaseException) -> Optional[str]:
    """Explain why an operator failed with `error` if an argument is not an array; else None."""
    blamed = _blamed(args, error)
    return _refused(name, [(f'argument {i + 1}', args[i]) for i in blamed]) if blamed else None


def _blamed(args: Sequence[Any], error: BaseException) -> list[int]:
    """Return positions of the arguments that are not arrays, if `error` is about these."""
    odd = [position for position, arg in enumerate(args) if not is_array(arg)]
    text = str(error.__cause__ or error)
    if any(words in text for words in _FOR_NONE):
        return [position for position in odd if args[position] is None] or odd
    if any(words in text for words in _NO_ARRAY):
        got = text.partition('but got ')[2]  # what an operator was given, if it was given it at all
        return [position for position in odd if got and _looks_like(args[position], got)] or odd
    return [position for position in odd if f"'{type(args[position]).__name__}' " in text]


def _looks_like(arg: Any, text: str) -> bool:
    """Return whether MXNet's error may have shown this argument so; containers hold Symbols."""
    return (
        text.startswith(repr(type(arg)())[0])
        if isinstance(arg, (list, tuple, dict))
        else text == str(arg)
    )


def _refused(who: str, given: Sequence[tuple[str, Any]]) -> str:
    reasons = '; '.join([f'{name} is {_what(arg)}' for name, arg in given])
    return f'{who} takes arrays and numbers, but {reasons}'


def _unlike_mxnet(error: BaseException) -> str:
    """Return the message of the user's own code if that code failed; empty otherwise."""
    cause = error.__cause__ or error
    lines = str(cause).splitlines() or ['']
    if any(words in str(cause) for words in _NO_ARRAY):
        return ''
    return f'\n  {type(cause).__name__}: {lines[0][:120]}'


def _what(arg: Any) -> str:
    """Describe an argument that should have been an array, and what to give instead."""
    if arg is None:
        return 'None: call it only where there is a value, or give an array of zeros'
    if isinstance(arg, bool):
        return f'{arg}: write int({arg})'
    if isinstance(arg, (str, bytes)):
        return (
            f'the {"string" if isinstance(arg, str) else "bytes"} {brief(arg)}: give what '
            f'stands for it in a vocabulary, an int'
        )
    if isinstance(arg, (list, tuple)):
        return _what_items(arg)
    return (
        f'{brief(arg)}, of the class {type(arg).__name__}: take the arrays and numbers out of '
        f'it in the forward() of a Block with AutoBatchMixin, and give these'
    )


def _what_items(items: Sequence[Any]) -> str:
    leaves = list(_leaves(items))
    kind = f'a {"" if len(leaves) == len(items) else "nested "}{type(items).__name__}'
    if not leaves:
        return f'{kind} without a value'
    if not all(map(is_array, leaves)):
        wrong = next(leaf for leaf in leaves if not is_array(leaf))
        return f'{kind} that holds {_what(wrong)}'
    if all([isinstance(leaf, NUMBERS) or leaf.shape == (1,) for leaf in leaves]):
        return (
            f'{kind} of {len(leaves)} numbers: give one array, such as '
            f"numpy.array(..., 'float32'), whose axis 0 has a row for the sample"
        )
    return (
        f'{kind} of {len(leaves)} arrays: call it for each of them, or put them together by '
        f'gluon_edbatch.stack or concat'
    )


def _leaves(items: Any) -> Iterator[Any]:
    if not isinstance(items, (list, tuple)):
        yield items
        return
    for item in items:
        yield from _leaves(item)


def current_model_call() -> Optional[ModelCall]:
    """Return the outermost call of a model that this thread is in; None outside."""
    found: Optional[FrameType] = None
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code in model_codes:
            found = frame
        frame = frame.f_back
    return (
        None
        if found is None
        else ModelCall(found.f_locals['self'], found.f_locals['args'], site_above(found))
    )


def refused_eagerly(error: BaseException, traceback: Optional[TracebackType]) -> Optional[str]:
    """Explain why a call inside an eager model failed, by the frames that the error passed."""
    call = None
    while traceback is not None:
        if traceback.tb_frame.f_code is _call_code:
            call = traceback.tb_frame
        traceback = traceback.tb_next
    if call is None or not isinstance(call.f_locals['self'], gluon.HybridBlock):
        return None
    text = refused_call(call.f_locals['self'], call.f_locals['args'], error, current_model_call())
    return text and f'{text}\n  called at {site_above(call)}'
