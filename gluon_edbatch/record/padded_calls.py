"""Record calls on arrays of different lengths as calls on padded arrays.

A padded call's result is cut to its length when it is read. A further padded call reads it uncut.
So a chain of padded calls pads its first arguments only, and cuts only what is read.
"""

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..subgraph.padded import PaddedGraph, padded_length
from ..subgraph.spec import Spec, spec_of
from ..subgraph.structure import unflatten
from .calls import Form
from .lazy import LazyArray

PAD, CUT = 'pad a length', 'cut off padding'  # operators that no user calls


class Padded(NamedTuple):
    """A padded value as padded calls read it; its padding is arbitrary, and has no gradient."""

    value: LazyArray
    axes: tuple[int, ...]  # along which it is padded


class PaddedCall(NamedTuple):
    """Tell how a call with arguments of certain shapes is recorded by `form`, on padded arguments.

    `pads` maps positions of arguments to their padding. `lengths`, (1,) each, are further
    arguments. Each output is padded along `axes`, and cut by `cuts`, one after the other. `pays`
    tells whether padding costs less than calls by length.
    """

    pads: dict[int, 'Pad']
    lengths: list[np.ndarray]
    form: Form
    cuts: list[list[Form]]
    axes: list[tuple[int, ...]]
    pays: bool

    def record(self, recording: Any, leaves: Sequence[LazyArray]) -> Any:
        """Record one call on padded values; return its results as lazy values."""
        values: list[NDArray] = list(leaves)
        for position, pad in self.pads.items():
            values[position] = pad.of(recording, leaves[position])
        values += recording.values(self.lengths)
        base = recording.next_value
        recording.append_call(self.form, values)
        outputs = []
        for output, (store, axes, cuts) in enumerate(zip(self.form.stores, self.axes, self.cuts)):
            value = recording.value_type(store, base + output)
            padded = Padded(value, axes)
            for cut in cuts:
                value = recording.append_call(cut, [value])
            if axes:
                recording.padded[value._id] = padded
            outputs.append(value)
        return unflatten(self.form.template, iter([outputs[leaf] for leaf in self.form.leaves]))

    def changed(self) -> bool:
        """Return whether containers among the block's attributes have changed (see `Form`)."""
        return self.form.changed()

    def is_wanted(self, recording: Any, leaves: Sequence[LazyArray]) -> bool:
        """Return whether padding costs less than calls by length, or is free for these
        arguments."""
        return self.pays or (
            recording.pads
            and all(
                leaves[position]._id in recording.padded
                or recording.given_numpy(leaves[position]) is not None
                for position in self.pads
            )
        )


class Pad(NamedTuple):
    """Tell how an argument is padded along an axis to `spec`; no `form` if it is that long."""

    spec: Spec
    axis: int
    form: Optional[Form]

    def of(self, recording: Any, leaf: LazyArray) -> LazyArray:
        """Return an argument with padding, padded once for all calls that read it."""
        known = recording.padded.get(leaf._id)
        if known is None or known.value._store.spec is not self.spec:
            known = recording.padded[leaf._id] = Padded(self._made(recording, leaf), (self.axis,))
        return known.value

    def _made(self, recording: Any, leaf: LazyArray) -> LazyArray:
        if self.form is None:
            return leaf
        array = recording.given_numpy(leaf)
        if array is None:
            return recording.append_call(self.form, [leaf])
        padded: np.ndarray = np.zeros(self.spec.shape, self.spec.dtype)
        padded[tuple(map(slice, array.shape))] = array
        return recording.known_array(self.spec, padded)


def buckets_of(
    padded: PaddedGraph, leaves: Sequence[LazyArray], known: dict[int, Padded]
) -> dict[int, int]:
    """Return the bucket of each argument that is padded, by its position. An argument keeps the
    bucket of the `known` padded value that it was cut from, unless each step costs time of its own.
    Arguments of one length have one bucket."""
    length = {position: leaves[position].shape[axis] for position, axis in padded.axes.items()}
    bucket = {own: padded_length(own, padded.by_step) for own in length.values()}
    for position, axis in padded.axes.items():
        value = known.get(leaves[position]._id)
        if value is not None and value.axes == (axis,) and not padded.by_step:
            own = length[position]
            bucket[own] = max(bucket[own], value.value.shape[axis])
    return {position: bucket[own] for position, own in length.items()}


def padded_call(
    padded: PaddedGraph,
    specs: Sequence[Spec],
    buckets: dict[int, int],
    of_operator: Callable[..., Form],
    of_call: Callable[[list[Spec]], Form],
) -> PaddedCall:
    """Return how a call on arguments of these specs is recorded on padded ones.

    `buckets` are the lengths of the padded arguments (see `buckets_of`). `of_operator` is
    `Forms.form_of_rewriting`. `of_call` returns the call's form for the specs of its padded
    arguments and lengths.
    """
    length = {position: specs[position].shape[axis] for position, axis in padded.axes.items()}
    pads = {i: _pad(specs[i], axis, buckets[i], of_operator) for i, axis in padded.axes.items()}
    full = [pads[i].spec if i in pads else spec for i, spec in enumerate(specs)]
    full += [spec_of((1,), np.int32, specs[0].ctx) for _ in padded.lengths]
    form = of_call(full)
    cuts = []
    for store, axes in zip(form.stores, padded.results):
        forms, spec = [], store.spec
        for axis, (position, longer) in sorted(axes.items()):
            left = length[position] + longer
            if left < spec.shape[axis]:
                forms.append(_cut_form(spec, axis, left, of_operator))
                spec = forms[-1].stores[0].spec
        cuts.append(forms)
    return PaddedCall(
        pads,
        [np.full((1,), length[position], np.int32) for position in padded.lengths],
        form,
        cuts,
        [tuple(axes) for axes in padded.results],
        padded.pays,
    )


def _pad(spec: Spec, axis: int, length: int, of_operator: Callable[..., Form]) -> Pad:
    """Return how a value is padded with zeros along an axis, to a length."""
    more = length - spec.shape[axis]
    if not more:
        return Pad(spec, axis, None)

    def padded(x: mx.sym.Symbol) -> mx.sym.Symbol:
        zeros = mx.sym.zeros_like(mx.sym.slice_axis(x, axis=axis, begin=0, end=more))
        return mx.sym.concat(x, zeros, dim=axis)

    form = of_operator(PAD, spec, padded, axis=axis, more=more)
    return Pad(form.stores[0].spec, axis, form)


def _cut_form(spec: Spec, axis: int, length: int, of_operator: Callable[..., Form]) -> Form:
    def cut(x: mx.sym.Symbol) -> mx.sym.Symbol:
        return mx.sym.slice_axis(x, axis=axis, begin=0, end=length)

    return of_operator(CUT, spec, cut, axis=axis, length=length)
