"""What a block's Python attributes look like, to notice that they changed."""
from typing import Any, Hashable, List

import numpy as np
from mxnet import gluon

_GLUON_STATE = frozenset(
    ['_children', '_params', '_reg_params', '_scope', '_forward_hooks', '_forward_pre_hooks',
     '_cached_graph', '_cached_op', '_cached_op_args', '_out_format', '_in_format', '_active',
     '_flags', '_callback', '_monitor_all', '_backend', '_backend_opts', '_empty_prefix',
     '_prefix', '_name', '_counter', '_init_counter', '_modified'])
_MUTABLE = (list, dict, set, np.ndarray)
_MAX_DEPTH = 4


def fingerprint(block: gluon.Block) -> Hashable:
    """A value that differs if the attributes of `block` or of its descendants differ.

    Plain values and containers of them count by value, NumPy arrays by contents, all other
    objects by identity.
    """
    attributes = tuple((name, _freeze(value, 0)) for name, value in block.__dict__.items()
                       if name not in _GLUON_STATE)
    children = tuple((name, id(child), fingerprint(child))
                     for name, child in block._children.items())
    return attributes, children


def containers(block: gluon.Block) -> List[Any]:
    """The attributes of `block` and its descendants that users may change in place.

    Gluon's own blocks keep the keywords of their operators in dicts that nobody touches.
    """
    found = [] if type(block).__module__.startswith('mxnet.') else [
        value for name, value in block.__dict__.items()
        if name not in _GLUON_STATE and isinstance(value, _MUTABLE)]
    for child in block._children.values():
        found += containers(child)
    return found


def contents(found: List[Any]) -> Hashable:
    """What such containers hold now."""
    return tuple([_freeze(value, 0) for value in found])


def changed_attributes(before: Hashable, after: Hashable, name: str = 'self') -> list:
    """Names of the attributes in which two fingerprints differ."""
    old, new = dict(before[0]), dict(after[0])
    changed = [f'{name}.{key}' for key in {**old, **new} if old.get(key, _freeze) != new.get(key)]
    for (key, _, child_before), (_, _, child_after) in zip(before[1], after[1]):
        changed += changed_attributes(child_before, child_after, f'{name}.{key}')
    return changed


def _freeze(value: Any, depth: int) -> Hashable:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value), value
    if isinstance(value, np.ndarray):
        return 'array', value.shape, value.dtype.str, value.tobytes()
    if depth < _MAX_DEPTH:
        if isinstance(value, (list, tuple)):
            return (type(value),) + tuple(_freeze(item, depth + 1) for item in value)
        if isinstance(value, (set, frozenset)):
            return (type(value), frozenset(_freeze(item, depth + 1) for item in value))
        if isinstance(value, dict):
            return (type(value),) + tuple(
                (_freeze(key, depth + 1), _freeze(item, depth + 1)) for key, item in value.items())
    return id(value)
