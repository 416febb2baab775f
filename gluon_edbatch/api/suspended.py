"""Suspend samples of plain code where they read a value; resume them when the value is there.

Each sample runs in a greenlet. To its driver it looks like a generator that yields what it reads.
When the first sample of a run reads for the first time, the program's effects are analysed. If
another sample could see that samples take turns, all of them read in place, one after the other.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from types import CodeType, FrameType, MethodType
from typing import Any, Callable, Optional
from weakref import WeakSet

from mxnet import autograd, gluon

from ..effects import Effects, classes_in, is_users, shared_by
from ..mx.blocks import hooks_of
from ..record.refused import model_codes
from ..record.sample_greenlets import ComputedRows
from ..record.sites import PASSED, kind_of

# Functions of MXNet and of this package below which a sample may wait: they call blocks, or read.
_MAY_WAIT = frozenset(
    '__call__ hooked_call _called call_block _call_with_user_hooks forward asscalar asnumpy '
    '__bool__ item tolist __float__ __int__ __array__ call_with_arguments _work contents'.split()
)
_MOST_PROGRAMS = 128
_MOST_KINDS = 4  # of one program
# Programs of which no sample has read a value. They run without greenlets until one does.
without_reads: 'WeakSet[Any]' = WeakSet()
_serials = count(1)
_analysed: 'OrderedDict[Any, list[Effects]]' = OrderedDict()


def is_plain(program: Any) -> bool:
    """Return whether a callable is the user's plain code, in which samples may be suspended."""
    if isinstance(program, gluon.Block):
        return is_users(type(program).forward) or is_users(type(program).__call__)
    return is_users(getattr(program, '__func__', program))


def directly(program: Any) -> Callable[[Any], Any]:
    """Return what calls a program by the fewest calls in C, whose stack each switch copies. In a
    scope, a model without hooks is called by its `forward`."""
    if not isinstance(program, gluon.Block) or isinstance(program, gluon.HybridBlock):
        return program
    call: Any = type(program).__call__
    if call is not gluon.Block.__call__ and getattr(call, '__code__', None) not in model_codes:
        return program

    def forward(sample: Any) -> Any:
        return program(sample) if hooks_of(program) else program.forward(sample)

    return forward


class Suspension:
    """Decide whether the samples of a run may be suspended.

    Parameters
    ----------
    program : callable
        The user's plain code.
    samples : sequence
        All samples of the run, each a tuple of arguments.
    among_others : bool
        Whether samples that are not known run at the same time.

    Attributes
    ----------
    serial : int
        A number that no other has (see `interpreter.frames_pass`).
    computed : ComputedRows
        Reads what is computed already.
    why : str
        Why samples are not suspended, once that is known.
    """

    def __init__(
        self, program: Callable[..., Any], samples: Sequence[tuple], among_others: bool = False
    ):
        self._program, self._samples, self._among_others = program, samples, among_others
        self._is_decided = False
        self._effects: Any = None  # keeps the codes that may run
        self._directly = directly(program)
        self.computed = ComputedRows()
        self._known: dict[int, bool] = {}  # whether a sample may be suspended, by id of the code
        self.why, self.serial = '', next(_serials)

    def of(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return what runs a sample, for the program or a function that calls it."""
        return self._directly if fn is self._program else fn

    def allows(self, frame: Optional[FrameType]) -> bool:
        """Return whether a sample may be suspended in a frame."""
        if not self._is_decided:
            self._decide()
        if self.why:
            return False
        known = self._known
        while frame is not None:
            code = frame.f_code
            if not (known.get(id(code)) or self._passes(code, frame.f_globals)):
                return False
            frame = frame.f_back
        return True

    def _passes(self, code: CodeType, names: dict[str, Any]) -> bool:
        number, is_passed = id(code), code.co_name in _MAY_WAIT and kind_of(code, names) == PASSED
        self._known[number] = is_passed or number in self._effects.codes
        return self._known[number]

    def _decide(self) -> None:
        self._is_decided, samples = True, self._samples
        classes, self.why = classes_in(samples)
        if not self.why:
            effects = _effects_of(self._program, classes, max(map(len, samples)))
            self.why = effects.why
            if effects.writes_samples and not self.why:
                unknown = 'the program writes to samples' if self._among_others else ''
                self.why = unknown or shared_by(samples, effects.writes_arrays)
            self._effects = effects
        self._samples = ()

    def note_reads(self) -> None:
        """Remember if no sample of this run has read a value, once all have finished."""
        if not self._is_decided and not self.computed.has_read:
            without_reads.add(code_of(self._program))


def code_of(program: Any) -> Any:
    """Return the code of a function or method, or the class of another callable."""
    return getattr(getattr(program, '__func__', program), '__code__', type(program))


def _effects_of(program: Any, classes: frozenset[type], arguments: int) -> Effects:
    """Return the effects of a program. They are analysed again only after a change of what the
    program consists of, or for samples of other classes."""
    key = id(code_of(program)), isinstance(program, MethodType), arguments, autograd.is_training()
    known = _analysed.setdefault(key, [])
    _analysed.move_to_end(key)
    for effects in known:
        if classes == effects.classes and effects.holds_for(program):
            return effects
    effects = Effects(program, classes, arguments, autograd.is_training())
    known.insert(0, effects)
    del known[_MOST_KINDS:]
    while len(_analysed) > _MOST_PROGRAMS:
        _analysed.popitem(last=False)
    return effects
