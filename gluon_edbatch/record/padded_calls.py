"""Calls on arrays of different lengths, recorded as calls on padded arrays.

What such a call returns is cut to its length for whoever asks. A padded call that is given it
takes it as it is; so of a chain of them nothing but the first arguments is padded, and nothing is
cut that nobody reads.
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
    """A value as padded calls take it: with any numbers behind its own, which get no gradient."""

    value: LazyArray
    axes: tuple[int, ...]  # along which it is padded


class PaddedCall(NamedTuple):
    """How a call with arguments of certain shapes is recorded: by `form`, on padded arguments.

    `pads` are of the arguments that are padded, and `lengths`, (1,) each, are further arguments.
    Each output is padded along `axes`, and cut by `cuts`, one after the other. It `pays` where this
    costs less than calls by length.
    """

    pads: dict[int, 'Pad']
    lengths: list[np.ndarray]
    form: Form
    cuts: list[list[Form]]
    axes: list[tuple[int, ...]]
    pays: bool

    def record(self, recording: Any, leaves: Sequence[LazyArray]) -> Any:
        """One more such call; gives its results as lazy values."""
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
        """See `Form`."""
        return self.form.changed()

    def is_wanted(self, recording: Any, leaves: Sequence[LazyArray]) -> bool:
        """Whether it costs less than calls by their lengths: no call is needed for padding that
        comes from padded calls, or NumPy."""
        return self.pays or (
            recording.pads
            and all(
                leaves[position]._id in recording.padded
                or recording.given_numpy(leaves[position]) is not None
                for position in self.pads
            )
        )


class Pad(NamedTuple):
    """How an argument becomes one of `spec`, longer along an axis; no form if it is one."""

    spec: Spec
    axis: int
    form: Optional[Form]

    def of(self, recording: Any, leaf: LazyArray) -> LazyArray:
        """An argument with padding; once for all calls that read it."""
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


def padded_call(
    padded: PaddedGraph,
    specs: Sequence[Spec],
    of_operator: Callable[..., Form],
    of_call: Callable[[list[Spec]], Form],
) -> PaddedCall:
    """How a call on arguments of these specs is recorded.

    `of_operator` is `Forms.form_of_rewriting`; `of_call` gives the form of the call by the specs of
    its padded arguments and lengths.
    """
    length = {position: specs[position].shape[axis] for position, axis in padded.axes.items()}
    pads = {i: _pad(specs[i], axis, of_operator) for i, axis in padded.axes.items()}
    full = [pads[i].spec if i in pads else spec for i, spec in enumerate(specs)]
    full += [spec_of((1,), np.int32, specs[0].ctx) for _ in padded.lengths]
    form = of_call(full)
    cuts = []
    for store, axes in zip(form.stores, padded.results):
        forms, spec = [], store.spec
        for axis, position in sorted(axes.items()):
            if length[position] < spec.shape[axis]:
                forms.append(_cut_form(spec, axis, length[position], of_operator))
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


def _pad(spec: Spec, axis: int, of_operator: Callable[..., Form]) -> Pad:
    """Zeros behind a value, of its own as they are no more than it has."""
    more = padded_length(spec.shape[axis]) - spec.shape[axis]
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
