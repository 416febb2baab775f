"""Replace methods of MXNet's classes for a while.

A function's code is replaced at once. Setting an attribute of a class makes Python walk through its
subclasses: for ``Block.__call__`` that takes longer than a small scope.
"""

from types import CodeType, FunctionType
from typing import Any, Callable

_HOOK = 'hook'


def _stand_in(*args, **kwargs):
    hook: Any = 'hook'  # a constant, in whose place the hook comes
    return hook(*args, **kwargs)


def calling(hook: Callable[..., Any], function: FunctionType) -> CodeType:
    """Return code for a function that passes its arguments on to `hook`."""
    code = _stand_in.__code__
    return code.replace(
        co_consts=tuple([hook if constant == _HOOK else constant for constant in code.co_consts]),
        co_freevars=function.__code__.co_freevars,
        co_name=function.__name__,
    )


def unhooked(function: FunctionType) -> FunctionType:
    """Return a function with the present code of another, whose own code may change later."""
    return FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
