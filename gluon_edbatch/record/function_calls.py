"""Record calls of an `autograd.Function` on lazy values, to run several calls as one.

The first call of each kind runs eagerly on the user's values, as its `forward` may have side
effects. It tells what later calls return. A Function whose result may depend on more than is
compared always runs eagerly, and `explain` says why.
"""

import copy
from collections.abc import Sequence
from typing import Any

from mxnet.ndarray import NDArray

from ..mx.arrays import values_read
from ..subgraph.fingerprint import PLAIN, exact
from ..subgraph.function_signature import (
    KIND,
    Results,
    Signature,
    known_call,
    note_returned,
    run_apart,
    run_eagerly,
    why_eager,
)
from ..subgraph.node_type import Kind
from .forms import key_of
from .hooks import call_function, suspended
from .lazy import LazyArray, RaggedArray
from .packed import unpacked
from .remembered import Maker
from .sites import current_site

_FIRST = (
    'the first call of a class with such arguments and attributes runs eagerly, which tells the '
    'shapes of its results'
)


def function_called(self, function: Any, inputs: Sequence[Any]) -> Any:
    """Call a Function and return its results; record the call if that is possible."""
    why = why_eager(type(function)) or _why_not(self, function, inputs)
    if why:
        return _run(self, function, inputs, why)
    signature = _signature(function)
    leaves = self.values([each for each in inputs if isinstance(each, NDArray)])
    leaves = unpacked(self, leaves)
    specs = [leaf._store.spec for leaf in leaves]
    if any([spec.eager for spec in specs]):
        return _run(self, function, inputs, 'it reads what runs on the tape of autograd itself')
    if signature.fault:
        return _run(self, function, inputs, signature.fault)
    constants = tuple([None if isinstance(each, NDArray) else exact(each) for each in inputs])
    call = known_call(signature, specs, constants, self.mode)
    if call is None:
        return _run_first(self, function, inputs, signature, specs, constants)
    call.inputs = tuple([None if isinstance(each, NDArray) else each for each in inputs])
    key = call, call.apart, *map(key_of, leaves)
    form = self.forms_by_key.get(key)
    if form is None:
        made_with = signature.name, signature.attributes(), ()
        maker = Maker(signature.name, call.types, (call.apart,), made_with)
        arguments = [(spec, Kind.ROWS) for spec in specs]
        form = self.forms_by_key[key] = self.make_form(maker, arguments, call.graph)
    function._used = True
    return self.append_call(form, leaves)


def _signature(function: Any) -> Signature:
    """Return the signature of a Function; constants among its attributes count as arrays."""
    constants = {
        name: value
        for name, value in vars(function).items()
        if isinstance(value, LazyArray) and value.made() is not None
    }
    with suspended():
        if constants:
            function = copy.copy(function)
            for name, value in constants.items():
                setattr(function, name, value.evaluated())
        return Signature(function)


def _why_not(self, function: Any, inputs: Sequence[Any]) -> str:
    if function._used:
        return 'a Function is called once'
    if self.mode.numpy:
        return 'it runs in NumPy mode'
    for each in inputs:
        if isinstance(each, RaggedArray):
            return 'it gets a ragged value'
        if not isinstance(each, NDArray) and (
            each is None or self.mode.recording or not isinstance(each, PLAIN)
        ):
            return 'an argument is no array'
    return ''


def _run(self, function: Any, inputs: Sequence[Any], why: str) -> Any:
    """Run a Function's call eagerly, and note why."""
    name = f'{KIND} {type(function).__qualname__}'
    self.evaluator.reasons[current_site()] = f'{name} runs eagerly: {why}'
    with suspended():  # its results join the tape by their handles, so they must be arrays
        return call_function(
            function,
            *[each.evaluated() if isinstance(each, LazyArray) else each for each in inputs],
        )


def _run_first(self, function, inputs, signature, specs, constants) -> Any:
    """Run a Function's call eagerly, to know what calls of the same kind return."""
    inputs = [each.evaluated() if isinstance(each, LazyArray) else each for each in inputs]
    with values_read() as read:
        result = _run(self, function, inputs, _FIRST)
    if read:
        run_apart(type(function), 'its forward reads values of arrays')
    with suspended():
        changed = signature.changed()
    if changed:
        run_eagerly(type(function), f'it changes {changed} while it runs')
        return result
    try:
        results = Results(result, specs[0].rows)
    except TypeError as error:
        run_eagerly(type(function), str(error))
    else:
        note_returned(signature, specs, constants, results)
    return result
