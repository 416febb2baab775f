"""Keep what a sample recorded, and append it again when the sample comes back."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any, Callable, Optional

from gluon_edbatch_core.errors import RecordError

from ..record.hooks import current_recording
from ..record.recording import Recording
from ..record.replay import Mark, PortableForms, ReplayFragment
from ..subgraph.node_type import Mode
from ..subgraph.options import CompileOptions

# What a recording depends on: the key, the function, autograd's mode and the options.
_Name = tuple[Hashable, Callable[..., Any], Mode, CompileOptions]


class Reuse:
    """Keep the recorded graphs of samples, to use them again in later epochs.

    ``reuse(key, function, *args)`` returns ``function(*args)``. In a `batching` scope, what the
    function recorded is kept under the key. When the key comes again, the calls are appended
    without running the function, several times as fast. Parameters have their present values;
    **numbers and NumPy arrays keep the values of the first time**. So the key must stand for
    everything else that the result depends on. The function must have no effect besides its result.

    The function runs as usual outside scopes, and where its calls cannot be used again. They cannot
    if it forced an evaluation, got NDArrays or values of outer calls, or a block has forward hooks
    or had attributes set. It runs again if blocks, the shapes of their parameters, the context or
    the mode of autograd changed.

    Parameters
    ----------
    limit : int, default 100_000
        Number of samples to keep, those used last. A sample takes about 100 bytes a call, and its
        arrays.
    check_every : int, default 100
        After so many uses the function runs again, and its recording is compared.

    Attributes
    ----------
    recorded, reused, checked : int
        How often the function ran, its calls were appended, and the two were compared.

    Raises
    ------
    ValueError
        If `limit` or `check_every` is less than 1.
    RecordError
        When called: a function did not record what it recorded under this key before.

    Examples
    --------
    >>> reuse = edb.Reuse()
    >>> for epoch in range(epochs):
    ...     for minibatch in minibatches:                 # of indices
    ...         with autograd.record():
    ...             with edb.batching():
    ...                 losses = [reuse(i, loss_of, samples[i]) for i in minibatch]
    ...             loss = edb.stack(losses).mean()
    """

    def __init__(self, limit: int = 100_000, check_every: int = 100):
        if limit < 1 or check_every < 1:
            raise ValueError(f'limit and check_every are at least 1, not {limit} and {check_every}')
        self.limit = limit
        self.check_every = check_every
        self.recorded = self.reused = self.checked = 0
        self._kinds = PortableForms()
        self._fragments: OrderedDict[_Name, ReplayFragment] = OrderedDict()
        self._lock = threading.Lock()  # around what several threads change in these
        self._uses = 0

    def __len__(self) -> int:
        """Return the number of samples that are kept."""
        return len(self._fragments)

    def clear(self) -> None:
        """Forget all samples."""
        with self._lock:
            self._fragments.clear()
            self._kinds = PortableForms()

    def __call__(self, key: Hashable, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(*args)``, recorded now or replayed from the recording of this key."""
        recording = current_recording()
        if recording is None:
            return function(*args)
        name = key, function, recording.mode, recording.options
        with self._lock:
            fragment = self._fragments.get(name)
            if fragment is not None:
                self._fragments.move_to_end(name)
        if fragment is not None and (self._uses + 1) % self.check_every:
            appended, result = fragment.append_to(recording)
            if appended:
                self._uses += 1
                self.reused += 1
                return result
        elif fragment is not None and fragment.fits(recording):
            self._uses += 1
            return self._check(recording, name, fragment, function, args)
        return self._record(recording, name, function, args)[0]

    def _record(
        self, recording: Recording, name: _Name, function: Callable[..., Any], args: Sequence[Any]
    ) -> tuple[Any, Optional[ReplayFragment]]:
        """Run the function; return its result and its recording, None if that cannot be reused."""
        begin, mode = Mark.of(recording), recording.mode
        result = function(*args)
        self.recorded += 1
        fragment = None
        if recording is current_recording() and recording.mode == mode:
            fragment = ReplayFragment.cut(self._kinds, recording, begin, result)
        with self._lock:
            if fragment is None:
                self._fragments.pop(name, None)
            else:
                self._fragments[name] = fragment
                while len(self._fragments) > self.limit:
                    self._fragments.popitem(last=False)
        return result, fragment

    def _check(
        self,
        recording: Recording,
        name: _Name,
        fragment: ReplayFragment,
        function: Callable[..., Any],
        args: Sequence[Any],
    ) -> Any:
        result, now = self._record(recording, name, function, args)
        self.checked += 1
        if now is None or now.packed_calls != fragment.packed_calls:
            return result  # that lengths differ was not known yet
        site = fragment.difference(now)
        if site is not None:
            raise RecordError(
                f'what {name[0]!r} records is not what it recorded the first time, from the call '
                f'at {site} on; a key must stand for all that the recorded calls depend on: use '
                f'another key, call the function without reuse, or clear() what is kept'
            )
        return result
