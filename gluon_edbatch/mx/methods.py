"""Methods of MXNet's classes that do something else for a while.

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
    """Code for a function that hands on to `hook` what it is called with."""
    code = _stand_in.__code__
    return code.replace(
        co_consts=tuple([hook if constant == _HOOK else constant for constant in code.co_consts]),
        co_freevars=function.__code__.co_freevars,
        co_name=function.__name__,
    )


def unhooked(function: FunctionType) -> FunctionType:
    """What does as a function does, whichever code that has later."""
    return FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
