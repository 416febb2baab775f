"""Run a static subgraph by NumPy, operator by operator, for a batch of rows.

It runs what the native executor does not: machines without it, and operators that it lacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .numpy_operators import BINARY, OPERATORS
from .numpy_shapes import Attrs
from .numpy_steps import (
    REDUCTIONS,
    Segments,
    Step,
    masked,
    of_parents,
    reduced,
    segments_of,
    softmax,
    summed_products,
    times_matrix,
)

Entry = tuple[int, int]
INPUT = 'edb_input'
_MOST_OUTPUTS = 1 << 12
_BY_AXIS = 'slice_axis', 'Concat'  # of each value, along an axis behind that of values
_NONE = segments_of(np.zeros(0, np.int64))


class NotInNumPy(Exception):
    """An operator has no NumPy form here."""


class CellNode(NamedTuple):
    """A node of a manifest; a variable has no operator."""

    op: str
    name: str
    attrs: Attrs
    inputs: tuple[Entry, ...]


class CellProgram:
    """Run batches of a type's calls.

    `nodes` are in topological order, with ``op``, ``name``, ``attrs`` and ``inputs``. Variables
    have no ``op``; those named ``edb_input0``, … are arguments, and `weights` has the others.
    `heads` are the results: numbers of nodes, and of their outputs. `ragged` has the positions of
    ragged arguments. Raises NotInNumPy if an operator has no NumPy form.
    """

    def __init__(
        self,
        nodes: Sequence[Mapping[str, Any]],
        heads: Sequence[Sequence[int]],
        weights: Mapping[str, np.ndarray],
        ragged: set[int] = frozenset(),  # type: ignore[assignment]
    ):
        self._nodes = [
            CellNode(
                node.get('op', ''),
                node.get('name', ''),
                node.get('attrs', {}),
                tuple([(entry[0], entry[1]) for entry in node.get('inputs', ())]),
            )
            for node in nodes
        ]
        self.heads = [(head[0], head[1]) for head in heads]
        self._ragged = ragged
        self._long: set[Entry] = set()  # what has a row for each ragged value
        self._known: dict[Entry, np.ndarray] = {}
        self._inputs: list[tuple[Entry, int]] = []
        self._steps: list[tuple[int, tuple[Entry, ...], Callable, bool, bool]] = []
        outputs = [0] * len(self._nodes)
        for index, node in enumerate(self._nodes):
            if any([not 0 <= source < index or not 0 <= output < outputs[source]
                    for source, output in node.inputs]):  # fmt: skip
                raise IndexError(f'inputs of node {index}')
            outputs[index] = self._add(index, node, weights)
        if any([not 0 <= output < outputs[source] for source, output in self.heads]):
            raise IndexError('results')
        if not self._long.isdisjoint(self.heads):
            raise NotInNumPy('a result along the axis of a ragged argument')

    def run(
        self,
        inputs: Sequence[np.ndarray],
        outs: Sequence[np.ndarray],
        segments: Optional[Segments] = None,
    ) -> None:
        """Compute a batch. Inputs are (n, ...); ragged ones (m, ...), values call after call, which
        `segments` describe. Results go to `outs`."""
        for out, result in zip(outs, self.results(inputs, segments)):
            out[...] = result

    def results(
        self, inputs: Sequence[np.ndarray], segments: Optional[Segments] = None
    ) -> list[np.ndarray]:
        """Return the results of arrays; they may be views of these."""
        env = dict(self._known)
        env.update([(entry, inputs[position]) for entry, position in self._inputs])
        for index, sources, function, of_segments, several in self._steps:
            given = [env[source] for source in sources]
            found = function(*given, segments or _NONE) if of_segments else function(*given)
            if several:
                env.update([((index, place), part) for place, part in enumerate(found)])
            else:
                env[index, 0] = found
        return [env[entry] for entry in self.heads]

    # --- making the steps ------------------------------------------------------------------------

    def _add(self, index: int, node: CellNode, weights: Mapping[str, np.ndarray]) -> int:
        """Add a node, and return how many outputs it has."""
        if not node.op:
            self._variable(index, node, weights)
            return 1
        known = OPERATORS.get(node.op)
        if known is None:
            raise NotInNumPy(node.op)
        long = [entry in self._long for entry in node.inputs]
        is_product = node.op == 'FullyConnected'
        if is_product and long[0] and node.attrs.get('flatten', True):
            raise NotInNumPy('FullyConnected(flatten=True) of a ragged argument')
        by_value = (known.by_value or is_product) and not any(long[1:])
        if any(long) and not by_value:
            function, is_long = self._of_ragged(node, long)
            self._steps.append((index, node.inputs, function, True, False))
        else:
            function, is_long = _made(node.op, node.attrs), any(long)
            several = node.op in ('SliceChannel', 'RNN')
            self._steps.append((index, node.inputs, function, False, several))
            if several:
                count = 3 if node.op == 'RNN' else node.attrs['num_outputs']
                if count > _MOST_OUTPUTS:
                    raise NotInNumPy(f'an operator with {count} outputs')
                return count
        if is_long:
            self._long.add((index, 0))
        return 1

    def _variable(self, index: int, node: CellNode, weights: Mapping[str, np.ndarray]) -> None:
        if node.name in weights:
            self._known[index, 0] = weights[node.name]
            return
        if not node.name.startswith(INPUT) or not node.name[len(INPUT) :].isdigit():
            raise NotInNumPy(f'a variable {node.name}')
        position = int(node.name[len(INPUT) :])
        self._inputs.append(((index, 0), position))
        if position in self._ragged:
            self._long.add((index, 0))

    def _of_ragged(self, node: CellNode, long: list[bool]) -> tuple[Step, bool]:
        """Return a step of ragged values, and whether its result has one for each value."""
        attrs, kind = node.attrs, node.op.split('_', 1)[-1]
        if node.op in ('elemwise_' + kind, 'broadcast_' + kind) and kind in BINARY:
            function = BINARY[kind]
            both = all(long)
            return (lambda x, y, _: function(x, y)) if both else of_parents(function, long), True
        if node.op in REDUCTIONS and attrs.get('axis') in (1, [1]) and not attrs.get('exclude'):
            return reduced(REDUCTIONS[node.op], bool(attrs.get('keepdims'))), False
        if node.op == 'softmax' and attrs.get('axis') == 1 and len(long) == 1:
            return softmax, True
        if node.op == 'batch_dot':
            first, second = [bool(attrs.get(f'transpose_{name}')) for name in 'ab']
            if long == [True, False] and not first:
                return times_matrix(second), True
            if all(long) and first and not second:
                return summed_products, False
            raise NotInNumPy('batch_dot that makes a ragged axis 2')
        if node.op in _BY_AXIS and attrs.get('axis', attrs.get('dim')) not in (0, 1) and all(long):
            moved = {name: attrs[name] - (attrs[name] > 0) for name in ('axis', 'dim')
                     if name in attrs}  # fmt: skip
            by_axis = OPERATORS[node.op].make({**attrs, **moved})
            return lambda *given: by_axis(*given[:-1]), True
        if node.op == 'SequenceMask' and attrs.get('axis') == 1 and long == [True, False]:
            return masked(float(attrs.get('value', 0))), True
        raise NotInNumPy(f'{node.op} of a ragged argument')


def _made(op: str, attrs: Attrs) -> Callable:
    try:
        return OPERATORS[op].make(attrs)
    except NotImplementedError as missing:
        raise NotInNumPy(str(missing)) from None
