"""A scope whose calls of blocks run at once, as eager Gluon runs them; operators, and functions of
this package, do as they do without a scope.

Where something happens that was not to be expected it records from there on: what was computed is
then an array like any other.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from mxnet import autograd, gluon
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array

from ..mx.arrays import alias
from ..mx.blocks import gives_new_arrays
from ..record.calls import Entered, call_as_ever, enter, is_recorded, place, record_block
from ..record.lazy import ComputedArray
from ..record.recording import Recording
from ..subgraph.node_type import Mode
from .whole_scopes import Begun, ScopeKind

# The block, and where in the user's code it was called (see `sites.site_at`).
CallNow = Tuple[gluon.Block, Tuple[int, int]]


class ImmediateScope(Entered):
    """Such a scope.

    Parameters
    ----------
    begun : Begun
    kind : ScopeKind
        Of which it is expected to be.
    as_arrays : callable
        Gives the arguments of a block with an array for whatever is to be one.
    new_recording : callable
        Gives a recording for the rest of the calls.

    Attributes
    ----------
    calls : list of CallNow
    rest : Recording or None
        Of the rest of the calls, if there is one.
    """

    def __init__(
        self,
        begun: Begun,
        kind: ScopeKind,
        as_arrays: Callable[[gluon.Block, Sequence[Any]], Sequence[Any]],
        new_recording: Callable[[], Recording],
    ):
        super().__init__()
        self.at_once = True
        self.begun, self.kind = begun, kind
        self.calls: List[CallNow] = []
        self.rest: Optional[Recording] = None
        self._as_arrays, self._new_recording = as_arrays, new_recording
        self._is_known: Optional[bool] = None
        self._most = 0
        self._is_timed = begun.is_timed
        self._kinds: Dict[gluon.Block, Tuple[bool, bool]] = {}  # what is known of a block

    def run_block(self, block: gluon.Block, args: Tuple[Any, ...]) -> Any:
        """See the base class."""
        if self.inside:
            return call_as_ever(block, args)
        if self._is_known is None and not self._begins_as_expected(block):
            return self.record_rest(block, args)
        kind = self._kinds.get(block)
        if kind is None:
            kind = self._kinds[block] = _runs(block), gives_new_arrays(block)
        if not kind[0]:
            return call_as_ever(block, args)
        if len(self.calls) >= self._most:
            return self.record_rest(block, args)
        if self._is_timed and self.begun.takes_too_long():
            self.begun.give_up()
            return self.record_rest(block, args)
        self.calls.append((block, place()))
        return self._run(block, args, kind[1])

    def _run(self, block: gluon.Block, args: Tuple[Any, ...], gives_new: bool) -> Any:
        given = args
        self.inside = True
        try:
            for arg in args:
                if not isinstance(arg, NDArray):
                    given = tuple(self._as_arrays(block, args))
                    break
            result = call_as_ever(block, given)
            if gives_new and result.__class__ is NDArray:  # as most do
                result.__class__ = ComputedArray
                return result
            return _computed(result, gives_new)
        except Exception:  # a scope takes more than Gluon, and its errors tell more
            self.calls.pop()
        finally:
            self.inside = False
        result = self.record_rest(block, args)
        self.begun.refuse()
        return result

    def _begins_as_expected(self, block: gluon.Block) -> bool:
        mode, kind = Mode(autograd.is_recording(), autograd.is_training(), is_np_array()), self.kind
        self._is_known = kind.is_of(block, mode)
        self._most = kind.expected
        return self._is_known

    def record_rest(self, block: gluon.Block, args: Tuple[Any, ...]) -> Any:
        """Record this call, and all that come after it."""
        return record_block(self.record_from_here(), block, args)

    def record_from_here(self) -> Recording:
        """Record whatever comes."""
        self.rest = recording = self._new_recording()
        self.outer, recording.outer = recording, self.outer
        self.closed = True  # to those who have it as the one that they entered
        enter(recording)
        return recording


def _computed(result: Any, new: bool) -> Any:
    """What a block returned, with arrays of the class that a scope gives."""
    kind = result.__class__
    if kind is NDArray:
        if not new:
            return alias(result, ComputedArray)
        result.__class__ = ComputedArray
        return result
    if kind is list or kind is tuple:
        return kind([_computed(each, new) for each in result])
    if isinstance(result, tuple) and hasattr(result, '_fields'):
        return kind(*[_computed(each, new) for each in result])
    if isinstance(result, dict):
        return kind([(key, _computed(each, new)) for key, each in result.items()])
    return result


def _runs(block: gluon.Block) -> bool:
    """Whether a scope that records would record its calls."""
    return is_recorded(type(block)) and 'forward' not in block.__dict__
