"""Replay fragments: cut the calls of one sample out of a recording, and append them to others."""

import threading
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.recorded_columns import Ints

from ..subgraph.fingerprint import contents, has_hooks
from ..subgraph.node_type import NodeType
from ..subgraph.structure import LEAF, builder, flatten
from .calls import CallColumns, Form
from .lazy import LazyArray
from .recording import Recording
from .remembered import Remembered
from .sites import Site, site_at

_VALUE, _NUMBER, _ARRAY = 0, 1, 2  # sorts of arguments
_NONE = Ints()


class Mark(NamedTuple):
    """A position in a recording, as counts of what is recorded."""

    nodes: int
    args: int
    lengths: int
    values: int
    scalars: int
    arrays: int
    disturbances: int

    @classmethod
    def of(cls, recording: Recording) -> 'Mark':
        """Return the present position of a recording."""
        return cls(
            len(recording.node_forms),
            len(recording.node_args),
            len(recording.node_lengths),
            recording.next_value,
            len(recording.scalars),
            len(recording.arrays),
            recording.disturbances + len(recording.evaluator.forced),
        )


class PortableForm(NamedTuple):
    """A form without a reference to its recording.

    `mark` is the fingerprint of the form's block when it was called, and `parameters` are the
    shapes and dtypes of its parameters then. `kind` makes the form in another recording.
    """

    node_type: NodeType
    block: Optional[gluon.Block]
    mark: Any
    parameters: tuple[tuple, ...]
    mutable: Optional[tuple]
    kind: Remembered


class PortableForms:
    """The forms that some fragments use, by number."""

    def __init__(self):
        self._kinds: list[PortableForm] = []
        self._numbers: dict[tuple, int] = {}
        self._lock = threading.Lock()

    def number(self, recording: Recording, form) -> int:
        """Return the number of a recording's form; give it one if it is new."""
        mark = None if form.block is None else recording.model.mark_of(form.block)
        specs = tuple([store.spec for store in form.stores])
        key = form.node_type, form.rows, form.length, specs, form.block, mark
        with self._lock:
            number = self._numbers.get(key)
            if number is None:
                self._kinds.append(
                    PortableForm(
                        form.node_type,
                        form.block,
                        mark,
                        _parameters(form.node_type),
                        form.mutable,
                        recording.remembered_form(form),
                    )
                )
                number = self._numbers[key] = len(self._kinds) - 1
        return number

    def forms(self, recording: Recording) -> Ints:
        """Return the index of each known call signature in a recording; -1 if it has none."""
        known = recording.adopted.get(self)
        if known is None:
            known = recording.adopted[self] = Ints()
        if len(known) < len(self._kinds):
            known.extend([-1] * (len(self._kinds) - len(known)))
        return known

    def adopt(self, recording: Recording, number: int) -> bool:
        """Add a form to a recording; return False if its block or a parameter has changed."""
        form = self._form(recording, self._kinds[number])
        if form is not None:
            self.forms(recording).since(0)[number] = form.index
        return form is not None

    def _form(self, recording: Recording, kind: PortableForm) -> Optional[Form]:
        """Return a recording's form for such calls; None if block or parameters have changed."""
        block = kind.block
        if kind.node_type not in recording.trusted:
            if block is not None and (
                recording.model.mark_of(block) != kind.mark
                or kind.parameters != _parameters(kind.node_type)
                or has_hooks(block)
            ):
                return None
            recording.trust(kind.node_type, block)
        return recording.form_again(kind.kind, block, kind.mutable)


def _parameters(node_type) -> tuple[tuple, ...]:
    return tuple((parameter.shape, parameter.dtype) for parameter in node_type.parameters)


class ReplayFragment:
    """A replay fragment: calls that depend on each other, numbers and NumPy arrays only.

    In `args`, computed values and numbers count from the first ones of the fragment. Values of
    arrays are filled in.
    """

    def __init__(
        self,
        kinds: PortableForms,
        recording: Recording,
        begin: Mark,
        result: Any,
        mode,
        ctx: mx.Context,
    ):
        self._kinds = kinds
        self.mode, self.ctx = mode, ctx
        forms, places = np.unique(recording.node_forms.since(begin.nodes), return_inverse=True)
        forms = [recording.forms[form] for form in forms.tolist()]
        self.kinds = np.array([kinds.number(recording, form) for form in forms], np.int64)[places]
        self._mutable = [form.mutable for form in forms if form.mutable is not None]
        packed = np.array([bool(form.length) for form in forms], np.int64)
        self.packed_calls = int(packed[places].sum())
        self.ends = recording.node_ends.since(begin.nodes) - begin.args
        self.lengths = recording.node_lengths.since(begin.lengths).copy()
        self.codes = recording.node_codes.since(begin.nodes).copy()
        self.instructions = recording.node_instructions.since(begin.nodes).copy()
        self.values = recording.next_value - begin.values
        self.scalars = recording.scalars[begin.scalars :]
        args = recording.node_args.since(begin.args).copy()
        sorts = _sorts(args)
        args[sorts == _VALUE] -= begin.values
        args[sorts == _NUMBER] += 2 * begin.scalars
        used, which = np.unique(_array_indices(args), return_inverse=True)
        self.arrays = [recording.arrays[index] for index in used.tolist()]
        args[sorts == _ARRAY] = -2 * (which + 1)
        self.args = args
        leaves: list[LazyArray] = []
        self.template = flatten(result, NDArray, leaves)
        self.results = [
            (leaf._store.spec, leaf._store.shown, leaf._id - begin.values) for leaf in leaves
        ]
        self._built = builder(self.template)
        self._only = self.results[0] if self.template == LEAF else None
        self._columns = CallColumns(
            self.kinds,
            self.ends,
            args,
            self.codes,
            self.instructions,
            self.lengths,
            self.scalars,
            self.values,
        )

    @classmethod
    def cut(
        cls, kinds: PortableForms, recording: Recording, begin: Mark, result: Any
    ) -> Optional['ReplayFragment']:
        """Return the fragment recorded since `begin`; None if it cannot be used again.

        A forced evaluation prevents a further use. So do calls that depend on outer values or
        NDArrays, and blocks that have forward hooks or had attributes set.
        """
        end = Mark.of(recording)
        if end.disturbances != begin.disturbances:
            return None
        args = recording.node_args.since(begin.args)
        outside = np.array([begin.values, 2 * begin.scalars, 0])
        if (np.abs(args) < outside[_sorts(args)]).any():
            return None
        if not all(
            isinstance(recording.arrays[index][1], np.ndarray)
            for index in np.unique(_array_indices(args)).tolist()
        ):
            return None
        blocks = {
            recording.forms[form].block
            for form in np.unique(recording.node_forms.since(begin.nodes)).tolist()
        }
        if any(block is not None and has_hooks(block) for block in blocks):
            return None
        leaves: list[Any] = []
        try:
            flatten(result, NDArray, leaves)
        except TypeError:
            return None
        if not all(
            leaf.__class__ is recording.value_type
            and leaf._store.recording is recording
            and leaf._id >= begin.values
            for leaf in leaves
        ):
            return None
        return cls(kinds, recording, begin, result, recording.mode, recording.ctx)

    def append_to(self, recording: Recording) -> tuple[bool, Any]:
        """Append the calls to a recording; return whether that was possible, and their results.

        Calls are not appended if blocks, parameters or the context have changed.
        """
        if (self._mutable or recording.ctx is not self.ctx) and not self._may_fit(recording):
            return False, None
        arrays = _NONE
        if self.arrays:
            arrays = Ints()
            arrays.extend([recording.known_array(spec, array)._id for spec, array in self.arrays])
        begin, forms = recording.next_value, self._kinds.forms(recording)
        unknown = recording.append_columns(self._columns, forms, arrays)
        while unknown >= 0:  # not known there yet
            if not self._kinds.adopt(recording, unknown):
                return False, None
            unknown = recording.append_columns(self._columns, forms, arrays)
        if self._only is not None:
            spec, shown, value = self._only
            return True, recording.value_of(spec, shown, begin + value)
        return True, self._built(
            [recording.value_of(spec, shown, begin + value) for spec, shown, value in self.results]
        )

    def _may_fit(self, recording: Recording) -> bool:
        for found, before in self._mutable:
            if before != contents(found):
                return False
        ctx = recording.ctx
        return ctx is self.ctx or ctx == self.ctx

    def fits(self, recording: Recording) -> bool:
        """Return whether `append_to` would append the calls."""
        known = self._kinds.forms(recording).since(0)[self.kinds]
        unknown = np.unique(self.kinds[known < 0]).tolist()
        return self._may_fit(recording) and all(
            [self._kinds.adopt(recording, number) for number in unknown]
        )

    def difference(self, other: 'ReplayFragment') -> Optional[Site]:
        """Return the user's line of the first call that differs in `other`; None without any."""
        theirs = list(other._calls())
        for node, (one, another) in enumerate(zip_longest(self._calls(), theirs)):
            if one != another:
                return other._site(min(node, len(theirs) - 1))
        same = np.array_equal(self.lengths, other.lengths) and (
            (self.template, self.results) == (other.template, other.results)
        )
        return None if same else other._site(len(theirs) - 1)

    def _calls(self) -> Iterator[tuple]:
        """Yield the form's number and the inputs of each call."""
        begin = 0
        for kind, end in zip(self.kinds.tolist(), self.ends.tolist()):
            yield kind, [self._input(value) for value in self.args[begin:end].tolist()]
            begin = end

    def _input(self, value: int) -> Any:
        if value >= 0:
            return value
        if value % 2:
            number = self.scalars[(-value - 1) // 2]
            return 'number', number if number == number else 'nan'
        _, array = self.arrays[-value // 2 - 1]
        return 'array', array.dtype.str, array.shape, array.tobytes()

    def _site(self, node: int) -> Site:
        return site_at(int(self.codes[node]), int(self.instructions[node]))


def _sorts(args: np.ndarray) -> np.ndarray:
    return np.where(args >= 0, _VALUE, np.where(args % 2 == 1, _NUMBER, _ARRAY))


def _array_indices(args: np.ndarray) -> np.ndarray:
    """Return the indices of a recording's arrays among arguments."""
    return -args[_sorts(args) == _ARRAY] // 2 - 1
