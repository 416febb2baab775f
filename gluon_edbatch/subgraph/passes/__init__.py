"""Passes: functions from subgraph to subgraph that change its speed, not its results."""

from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from ... import debug
from ..ir import Shape, Subgraph
from ..options import CompileOptions
from .faster_operators import operators
from .mended_gradients import gradients

Shapes = dict[str, Shape]


class Pass(NamedTuple):
    """A pass, and when it is applied."""

    # the name in `CompileOptions` that switches it; None if it must always run
    option: Optional[str]
    # (subgraph, shapes of its inputs) -> the subgraph itself, or what takes its place
    apply: Callable[[Subgraph, Shapes], Subgraph]
    devices: tuple[str, ...] = ('cpu', 'gpu')  # where it helps, or may be expected to


PASSES = (
    Pass('operators', operators, ('cpu',)),
    Pass(None, gradients),  # last: others make sums, too
)


_MOST_PASSED = 512
# What passes made of graphs, as those of other modes are often equal; by structure and arguments.
_passed: dict[tuple, tuple[Subgraph, tuple[str, ...]]] = {}


def apply_passes(
    graph: Subgraph,
    shapes: Shapes,
    options: CompileOptions,
    device: str,
    dtypes: Optional[Mapping[str, Any]] = None,
) -> tuple[Subgraph, list[str]]:
    """Apply the passes that are switched on, and made for the device, one after the other.

    `shapes` are those of the inputs for some number of rows. `dtypes` of the inputs are written in
    the graph, as parameters' dtypes are. Returns the graph, and the options whose passes changed
    something.
    """
    facts = frozenset((dtypes or {}).items()), frozenset(graph.known(shapes).items())
    key = (graph.structure, *facts, options, device)
    if key in _passed and not debug.LEVEL:
        made, names = _passed[key]
        return made, list(names)
    made, changed = graph.with_dtypes(dtypes) if dtypes else graph, []
    for one in PASSES:
        if device in one.devices and (one.option is None or getattr(options, one.option)):
            before, made = made, one.apply(made, shapes)
            debug.changed(one.apply.__name__, before, made)
            if one.option is not None and made is not before:
                changed.append(one.option)
    if graph.structure is not None and made is not graph:
        if len(_passed) >= _MOST_PASSED:
            _passed.clear()
        _passed[key] = made, tuple(changed)
    return made, changed
