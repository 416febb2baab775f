"""A scope whose calls of blocks run at once, as eager Gluon runs them; functions of this package do
as they do without a scope.

What eager Gluon does around a call of a hybridized block, and MXNet around an operator, is done
here in less time: in loops over small calls it takes longer than these. Where something happens
that was not to be expected it records from there on: what was computed is then an array like any
other. Compiled by Cython where a compiler is present.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple
from weakref import WeakKeyDictionary

from mxnet import autograd, gluon
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array

from ..mx import running
from ..mx.arrays import alias
from ..mx.blocks import gives_new_arrays, is_recorded
from ..mx.hybrid import NotRun, hybrid_call
from ..mx.invoke import invoke
from ..mx.running import IN_C
from ..record.calls import call_as_ever, record_block
from ..record.lazy import ComputedArray, EagerRagged
from ..record.recording import Recording
from ..record.scopes import Entered, enter, place
from ..subgraph.node_type import Mode
from .whole_scopes import Begun, ScopeKind

# The block, and where in the user's code it was called (see `sites.site_at`).
CallNow = Tuple[gluon.Block, Tuple[int, int]]

running.prepare(IN_C[0], IN_C[1], IN_C[2], IN_C[3], IN_C[4], IN_C[5])


class Known:
    """What is known of a block whose calls run at once.

    Attributes
    ----------
    counts : bool
        Whether a scope that records would record its calls; of others what they call is.
    hybrid : HybridCall or None
        What runs its graph, if it is hybridized.
    """

    def __init__(self, block: gluon.Block):
        self._forward = type(block).forward
        self.counts = is_recorded(block)
        self.hybrid = hybrid_call(block)

    def is_of(self, block, state):
        """Whether the block is as it was."""
        return (
            type(block).forward is self._forward
            and 'forward' not in state
            and (
                state.get('_active') is not True
                if self.hybrid is None
                else self.hybrid.is_of(state)
            )
        )


_known: 'WeakKeyDictionary[gluon.Block, Known]' = WeakKeyDictionary()


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
        Entered.__init__(self)
        self.at_once = True
        self.begun, self.kind = begun, kind
        self.calls: List[CallNow] = []
        self.rest: Optional[Recording] = None
        self._as_arrays, self._new_recording = as_arrays, new_recording
        self._begins = True
        self._inside = False  # whether a call of a block runs
        self._most = 0
        self._is_timed = begun.is_timed
        self._blocks: Dict[gluon.Block, Known] = {}

    def run_block(self, block, args):
        """See the base class."""
        if self._inside:
            return call_as_ever(block, args)
        if self._begins and not self._begins_as_expected(block):
            return self.record_rest(block, args)
        known = self._known_of(block)
        if not known.counts:
            return call_as_ever(block, args)
        if len(self.calls) >= self._most:
            return self.record_rest(block, args)
        if self._is_timed and self.begun.takes_too_long():
            self.begun.give_up()
            return self.record_rest(block, args)
        self.calls.append((block, place()))
        self._inside = True
        try:
            return self._run(known, block, args)
        except Exception:  # a scope takes more than Gluon, and its errors tell more
            self.calls.pop()
        finally:
            self._inside = False
        result = self.record_rest(block, args)
        self.begun.refuse()
        return result

    def _run(self, known, block, args):
        for arg in args:
            if not isinstance(arg, NDArray):
                args = tuple(self._as_arrays(block, args))
                break
        state, hybrid = block.__dict__, known.hybrid
        if hybrid is not None and hybrid.is_of(state) and hybrid.is_whole(block, state):
            result = hybrid.run(args, ComputedArray)
            if result is not NotRun:
                return result
        return _computed(call_as_ever(block, args), gives_new_arrays(block))

    def _known_of(self, block):
        known = self._blocks.get(block)
        if known is None:
            known = _known.get(block)
            if known is None or not known.is_of(block, block.__dict__):
                known = _known[block] = Known(block)
            self._blocks[block] = known
        return known

    def run_cached(self, block, args):
        """What the graph of a hybridized block gives; `NotRun` if Gluon is to see to it."""
        hybrid = self._known_of(block).hybrid
        if hybrid is None or not hybrid.is_of(block.__dict__):
            return NotRun
        return hybrid.run(args, NDArray if self._inside else ComputedArray)

    def run_operator(self, handle, ndargs, keys, vals, is_np_op, output_is_list):
        """See the base class. What is computed of such arrays is of their class."""
        cls = NDArray
        if not self._inside:
            for array in ndargs:
                if type(array) is ComputedArray or type(array) is EagerRagged:
                    cls = ComputedArray
                    break
        if is_np_op or not running.can_run_operator(handle, ndargs, keys, vals):
            return invoke(handle, ndargs, keys, vals, None, is_np_op, output_is_list)
        return running.run_operator(handle, ndargs, keys, vals, cls, output_is_list)

    def _begins_as_expected(self, block):
        mode, kind = Mode(autograd.is_recording(), autograd.is_training(), is_np_array()), self.kind
        self._begins = False
        self._most = kind.expected
        return kind.is_of(block, mode)

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
