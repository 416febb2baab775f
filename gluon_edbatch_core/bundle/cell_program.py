"""Run a static subgraph as steps of NumPy, for a batch of rows.

Ragged arguments are not padded. Their values are ordered by rank: the first value of each call,
then the second of each, and so on, with calls by descending length. So the values of one rank are a
slice, and belong to the first rows of the batch. Operators value by value run unchanged, sums over
values add slices, and nothing is gathered.

Products with the same input are one product. A result that nothing else reads is overwritten, and
the subgraph's results are written directly to their destination.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .numpy_operators import BINARY, OPERATORS, copied
from .numpy_shapes import Attrs
from .numpy_steps import (
    NONE,
    REDUCTIONS,
    Env,
    Joined,
    Outs,
    Segments,
    Step,
    masked,
    of_parents,
    one_step,
    product,
    reduced,
    softmax,
    summed_products,
    times_matrix,
)

Entry = tuple[int, int]
INPUT = 'edb_input'
_MOST_OUTPUTS = 1 << 12
_BY_AXIS = 'slice_axis', 'Concat'  # of each value, along an axis behind that of values


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
        self._weights: Mapping[str, np.ndarray] = weights
        self._ragged = ragged
        self._steps: list[Step] = []
        self._size = 0
        self._inputs: list[tuple[int, int]] = []
        self._constants: list[tuple[int, np.ndarray]] = []
        self._written: set[int] = set()
        self._slots: dict[Entry, int] = {}
        self._long: set[Entry] = set()
        self._owned: set[Entry] = set()  # may be written over by who reads them last
        self._reads = Counter(entry for node in self._nodes for entry in node.inputs)
        self._reads.update(self.heads)
        self._last = {
            entry: index for index, node in enumerate(self._nodes) for entry in node.inputs
        }
        self._last.update(dict.fromkeys(self.heads, len(self._nodes)))
        self._done: set[int] = set()  # products that ran with an earlier one
        self._zero_tails: set[Entry] = set()  # zeros where calls have no values
        self._make()
        self._results = [self._slots[entry] for entry in self.heads]
        self._weights = {}  # or weights that were joined would be kept twice

    def run(
        self,
        inputs: Sequence[np.ndarray],
        outs: Outs,
        segments: Optional[Segments] = None,
    ) -> None:
        """Compute a batch. Inputs are (n, ...); ragged ones (m, ...), values by rank. They may be
        overwritten, and results go to `outs`. `segments` describe ragged arguments."""
        env = self._computed(inputs, outs, segments or NONE)
        for place, slot in enumerate(self._results):
            if place not in self._written:
                outs[place][...] = env[slot]

    def results(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the results of arrays; they may be views of these."""
        env = self._computed(inputs, [None] * len(self.heads), NONE)
        return [env[slot] for slot in self._results]

    def _computed(
        self, inputs: Sequence[np.ndarray], outs: Sequence[Any], segments: Segments
    ) -> Env:
        env: Env = [None] * self._size
        for slot, value in self._constants:
            env[slot] = value
        for slot, position in self._inputs:
            env[slot] = inputs[position]
        for step in self._steps:
            step(env, outs, segments)
        return env

    # --- making the steps ------------------------------------------------------------------------

    def _make(self) -> None:
        """Make the steps of all nodes. Raise NotInNumPy if NumPy cannot run them."""
        for index, node in enumerate(self._nodes):
            if not node.op:
                self._variable(index, node)
            elif node.op == 'FullyConnected' and all(map(self._is_weight, node.inputs[1:])):
                if index not in self._done:
                    self._products(index, node)
            else:
                self._operator(index, node)
        if not self._long.isdisjoint(self.heads):
            raise NotInNumPy('a result along the axis of a ragged argument')

    def _slot(self, entry: Entry) -> int:
        self._slots[entry] = self._size
        self._size += 1
        return self._slots[entry]

    def _variable(self, index: int, node: CellNode) -> None:
        slot = self._slot((index, 0))
        if node.name in self._weights:
            self._constants.append((slot, self._weights[node.name]))
            return
        if not node.name.startswith(INPUT) or not node.name[len(INPUT) :].isdigit():
            raise NotInNumPy(f'a variable {node.name}')
        position = int(node.name[len(INPUT) :])
        self._inputs.append((slot, position))
        if position in self._ragged:
            self._long.add((index, 0))

    def _target(self, index: int) -> Optional[int]:
        """Return which of the cell's results a node computes; None if it computes none."""
        entry = (index, 0)
        if self.heads.count(entry) == 1:
            place = self.heads.index(entry)
            self._written.add(place)
            return place
        return None

    def _reusable(self, index: int, entries: Sequence[Entry]) -> Optional[int]:
        """Return the slot of an argument that a node may overwrite."""
        for entry in entries:
            if entry in self._owned and self._last[entry] == index:
                return self._slots[entry]
        return None

    # --- products --------------------------------------------------------------------------------

    def _products(self, index: int, node: CellNode) -> None:
        """Add a product, joined with all others that have the same input."""
        source = node.inputs[0]
        group = [
            place
            for place, other in enumerate(self._nodes)
            if other.op == node.op
            and other.inputs[0] == source
            and _is_flat(other) == _is_flat(node)
            and all([self._is_weight(entry) for entry in other.inputs[1:]])
        ]
        if index not in group:
            raise NotInNumPy('FullyConnected with weights that are computed')
        is_long = source in self._long
        if is_long and _is_flat(node):
            raise NotInNumPy('FullyConnected(flatten=True) of a ragged argument')
        self._done.update(group)
        slots = [self._slot((place, 0)) for place in group]
        made = {(place, 0) for place in group}
        self._owned |= made
        if is_long:
            self._long |= made
        target = self._target(index) if len(group) == 1 else None
        if target is not None:
            self._owned.discard((index, 0))
        joined = Joined(*self._joined(group), _is_flat(node), source in self._zero_tails)
        self._steps.append(product(self._slots[source], slots, joined, target))

    def _is_weight(self, entry: Entry) -> bool:
        return self._nodes[entry[0]].name in self._weights and not self._nodes[entry[0]].op

    def _joined(self, group: Sequence[int]) -> tuple[np.ndarray, Optional[np.ndarray], list[int]]:
        """Return weights (inputs, outputs), biases if there are any, and where the columns end."""
        weights: list[np.ndarray] = []
        biases: list[np.ndarray] = []
        for place in group:
            weight, *own = [
                self._weights[self._nodes[entry[0]].name] for entry in self._nodes[place].inputs[1:]
            ]
            weights.append(weight)
            biases += own or [np.zeros(len(weight), weight.dtype)]
        joined, bias = np.ascontiguousarray(np.concatenate(weights).T), np.concatenate(biases)
        ends = np.cumsum([len(weight) for weight in weights]).tolist()
        return joined, bias if bias.any() else None, ends

    # --- other operators -------------------------------------------------------------------------

    def _operator(self, index: int, node: CellNode) -> None:
        known = OPERATORS.get(node.op)
        if known is None:
            raise NotInNumPy(node.op)
        long = [entry in self._long for entry in node.inputs]
        if any(long) and not (known.by_value and not any(long[1:])):
            self._of_ragged(index, node, long)
            return
        try:
            function = known.make(node.attrs)
        except NotImplementedError as missing:
            raise NotInNumPy(str(missing)) from None
        sources = [self._slots[entry] for entry in node.inputs]
        if node.op == 'SliceChannel' or node.op == 'RNN':
            self._parts(index, node, function, sources)
            return
        entry = (index, 0)
        slot = self._slot(entry)
        if long and long[0]:
            self._long.add(entry)
        takes_out = known.elementwise or node.op == 'Embedding'
        target = self._target(index) if takes_out else None
        reuse = self._reusable(index, node.inputs) if known.elementwise else None
        if target is None and not known.view and function is not copied:
            self._owned.add(entry)
        self._steps.append(one_step(function, sources, slot, target, reuse))

    def _parts(self, index: int, node: CellNode, function: Callable, sources: list[int]) -> None:
        """Add an operator with several results."""
        count = 3 if node.op == 'RNN' else node.attrs['num_outputs']
        if count > _MOST_OUTPUTS:
            raise NotInNumPy(f'an operator with {count} outputs')
        slots = []
        for output in range(count):
            slots.append(self._slot((index, output)))
            if node.inputs[0] in self._owned and self._reads[node.inputs[0]] == 1:
                self._owned.add((index, output))

        def step(env: Env, outs: Outs, segments: Segments) -> None:
            for slot, part in zip(slots, function(*[env[source] for source in sources])):
                env[slot] = part

        self._steps.append(step)

    # --- ragged arguments ------------------------------------------------------------------------

    def _of_ragged(self, index: int, node: CellNode, long: list[bool]) -> None:
        entry, attrs = (index, 0), node.attrs
        sources = [self._slots[each] for each in node.inputs]
        slot, is_long = self._slot(entry), True
        kind = node.op.split('_', 1)[-1]
        if node.op in ('elemwise_' + kind, 'broadcast_' + kind) and kind in BINARY:
            values = [each for each, of_value in zip(node.inputs, long) if of_value]
            reuse = self._reusable(index, values)
            if all(long):
                step = one_step(BINARY[kind], sources, slot, None, reuse)
            else:
                step = of_parents(BINARY[kind], sources, long, slot, reuse)
        elif node.op in REDUCTIONS and attrs.get('axis') in (1, [1]) and not attrs.get('exclude'):
            is_long, keep = False, bool(attrs.get('keepdims'))
            if node.op == 'sum' and not keep:
                self._zero_tails.add(entry)
            step = reduced(REDUCTIONS[node.op], sources[0], slot, keep)
        elif node.op == 'softmax' and attrs.get('axis') == 1 and len(sources) == 1:
            step = softmax(sources[0], slot)
        elif node.op == 'batch_dot':
            first, second = [bool(attrs.get(f'transpose_{name}')) for name in 'ab']
            if long == [True, False] and not first:
                step = times_matrix(sources, second, slot)
            elif all(long) and first and not second:
                is_long, step = False, summed_products(sources, slot)
            else:
                raise NotInNumPy('batch_dot that makes a ragged axis 2')
        elif (
            node.op in _BY_AXIS and attrs.get('axis', attrs.get('dim')) not in (0, 1) and all(long)
        ):
            moved = {name: attrs[name] - (attrs[name] > 0) for name in ('axis', 'dim')
                     if name in attrs}  # fmt: skip
            function = OPERATORS[node.op].make({**attrs, **moved})
            step = one_step(function, sources, slot, None, None)
        elif node.op == 'SequenceMask' and attrs.get('axis') == 1 and long == [True, False]:
            step = masked(sources, slot, float(attrs.get('value', 0)))
        else:
            raise NotInNumPy(f'{node.op} of a ragged argument')
        self._steps.append(step)
        if is_long:
            self._long.add(entry)
        if node.op != 'SequenceMask':  # which may return its argument
            self._owned.add(entry)


def _is_flat(node: CellNode) -> bool:
    return bool(node.attrs.get('flatten', True))
