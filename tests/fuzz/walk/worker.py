"""Runs cases both ways, one a line of its input: ``python -m walk.worker``.

It answers with lines of JSON: what it is at (a crash tells no more), and what came out.
"""

import ast
import ctypes
import json
import os
import re
import signal
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray, register

import gluon_edbatch as edb
from gluon_edbatch.mx.symbols import symbol_function
from gluon_edbatch.ops import op_of
from gluon_edbatch.record.lazy import LazyArray
from gluon_edbatch_core.errors import BatchError, EdbError

from .cases import Case, Input
from .registry import handle

# Of processor time for a case, one way, and more for each call: three hundred that run one by one
# beside other work took five.
SECONDS, SECONDS_A_CALL = 5.0, 0.1
_M_PERTURB, _JUNK = -6, (0x41, 0xC2, 0xFF)  # of <malloc.h>; the last fills with zeros
_INTEGERS = ('index', 'length')
_CONSTANT = _INTEGERS + ('state',)
RULE, WHOLE, ONE_BY_ONE, REFUSED, EAGER_FAILS = (
    'by rule',
    'whole values',
    'one by one',
    'refused',
    'eager fails',
)
OWN = 'own gradient'  # what a worker can be asked for instead, as `eager` and `batched` one way
_TOLERANCE = {'float16': 2e-2, 'float32': 3e-5, 'float64': 1e-10}
# MXNet's relu in rnn_impl.h is `x > 0.0f ? static_cast<float>(x) : 0.0f`, and so is its gradient:
# in float64, too, each step is rounded to single precision, 1e-7 from what NumPy computes.
_SINGLE_PRECISION = {'RNN': {'mode': 'rnn_relu'}}


class Run(NamedTuple):
    """What the calls gave: results of each, gradients of each input, inputs afterwards; if asked,
    how large the gradients of an input are that the calls give it, all together."""

    results: list[list[np.ndarray]]
    gradients: list[Optional[np.ndarray]]
    inputs: list[np.ndarray]
    sums: Sequence[float] = ()


class Call:
    """The calls of a case, on their arrays; the gradients of their results are so much times what
    is drawn for them."""

    def __init__(self, case: Case, dtype: str = '', times: float = 1.0):
        self.case, self._times = case, times
        random = np.random.RandomState(case.seed)
        shared = {
            position: _array(each, case, random, 0, dtype)
            for position, each in enumerate(case.inputs)
            if each.shared
        }
        self.arguments = [
            [
                shared[position] if each.shared else _array(each, case, random, sample, dtype)
                for position, each in enumerate(case.inputs)
            ]
            for sample in range(case.calls)
        ]
        self.arrays = list(
            {id(array): array for arguments in self.arguments for array in arguments}.values()
        )

    def run(self, batched: bool, recorded: bool, sums: bool = False) -> Run:
        """The calls, with or without a scope."""
        # MXNet makes other numbers, or none, of some code with Symbols than with arrays.
        of_symbols = self.case.code and self.case.block
        call = _Block(self.case).hybridized if of_symbols else _invoke
        if recorded:
            for array in self._differentiable():
                array.attach_grad()
        mode = (
            autograd.record(self.case.training) if recorded else autograd.pause(self.case.training)
        )
        with mode:
            results = (
                self._batched()
                if batched
                else [
                    _listed(call(self.case, self._copied(arguments, self._copy())))
                    for arguments in self.arguments
                ]
            )
        summed = self._sums(results) if recorded and sums else ()
        if recorded:
            self._backward(results)
        return Run(
            [[_as_numpy(value) for value in each] for each in results],
            [None if array.grad is None else array.grad.asnumpy() for array in self.arrays],
            []
            if 'BatchNorm' in self.case.op
            # it writes ones to gamma, now or never
            else [array.asnumpy() for array in self.arrays],
            summed,
        )

    def _differentiable(self) -> Iterator[NDArray]:
        """Not labels: loss heads leave anything in their gradients."""
        for arguments in self.arguments:
            for position, (array, each) in enumerate(zip(arguments, self.case.inputs)):
                if (
                    np.issubdtype(array.dtype, np.floating)
                    and each.sort not in _CONSTANT
                    and not (position and op_of(self.case.op).own_gradient)
                ):
                    yield array

    def _copied(self, arguments: list[NDArray], copy) -> list[NDArray]:
        """What is not shared, as something that was computed."""
        return [
            array if each.shared else copy(array)
            for array, each in zip(arguments, self.case.inputs)
        ]

    def _copy(self) -> Callable[[NDArray], NDArray]:
        return mx.np.copy if self.case.code else mx.nd.identity

    def _batched(self) -> list[list[NDArray]]:
        case = self.case
        block = _Block(case)
        call = (lambda _, lazy: block(*lazy)) if case.block else _invoke
        copy = _Copied(case._replace(code='np.copy(a)')) if case.code else edb.nd.identity
        with edb.compile_options(native=case.native), edb.batching('agenda') as scope:
            results = [
                _listed(call(case, self._copied(arguments, copy))) for arguments in self.arguments
            ]
        self.how = _how(scope, case, results)
        try:
            edb.forward(results)
        except EdbError as error:
            raise BatchError(f'evaluation: {error}') from error
        return [
            [value.evaluated() if isinstance(value, LazyArray) else value for value in each]
            for each in results
        ]

    def _sums(self, results: list[list[NDArray]]) -> list[float]:
        """What gradients are rounded by: terms of many calls may cancel in an input they share."""
        sums = [0.0] * len(self.arrays)
        shared = {
            id(array) for array, each in zip(self.arguments[0], self.case.inputs) if each.shared
        }
        for only in range(len(results)):
            self._backward(results, only)
            for place, array in enumerate(self.arrays):
                if id(array) in shared and array.grad is not None:
                    sums[place] += float(np.abs(array.grad.asnumpy()).max(initial=0))
        return sums

    def _backward(self, results: list[list[NDArray]], only: Optional[int] = None) -> None:
        random, heads, weights = np.random.RandomState(self.case.seed + 1), [], []
        for call, each in enumerate(results):
            unused = self.case.few and call not in (1, 2)
            for value in each:
                weight = random.uniform(0.5, 1.5, value.shape) * (not unused) * self._times
                # What is not used has the gradient zero, and zero times infinity, in a batch.
                if only not in (None, call) or (self.case.code and not _is_on_tape(value)):
                    continue
                if np.issubdtype(value.dtype, np.floating) and not (
                    unused and op_of(self.case.op).own_gradient
                ):
                    heads.append(value)
                    weights.append(_new(self.case)(weight, dtype=value.dtype))
        if heads:
            try:
                autograd.backward(heads, weights, retain_graph=only is not None)
            except mx.base.MXNetError as error:
                if 'not in a computational graph' not in str(error):
                    raise


class _Block(gluon.HybridBlock):
    """The operator in a block."""

    def __init__(self, case: Case):
        super().__init__()
        self.case = case

    def hybridized(self, _: Case, arguments: Sequence[NDArray]) -> Any:
        """Run the operator as a graph, as hybridized Gluon does."""
        self.hybridize()
        return self(*arguments)

    def hybrid_forward(self, F, *args):
        """Call the operator on arrays or Symbols."""
        if self.case.code:
            return _written(self.case.code)(F.np, F.npx, *args)
        return symbol_function(self.case.op)(*args, **_attributes(self.case))


class _Copied(_Block):
    """What makes values of arrays in NumPy mode."""


@cache
def _written(code: str) -> Callable[..., Any]:
    """What a user wrote, as a function."""
    body = code if 'return' in code else f'return {code}'
    names: dict[str, Any] = {'onp': np}
    exec(
        f'def call(np, npx, {", ".join(f"{name}=None" for name in "abcdefgh")}):\n'
        + textwrap.indent(body, '    '),
        names,
    )
    return names['call']


def _new(case: Case) -> Callable[..., NDArray]:
    return mx.np.array if case.code else mx.nd.array


def _attributes(case: Case) -> dict[str, Any]:
    if not case.numpy_numbers:
        return dict(case.attrs)
    return {name: _of_numpy(text) for name, text in case.attrs.items()}


def _of_numpy(text: str) -> Any:
    def made(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)([made(item) for item in value])
        if type(value) in (int, float):
            return np.int64(value) if type(value) is int else np.float64(value)
        return value

    try:
        return made(ast.literal_eval(text))
    except (ValueError, SyntaxError):  # a word
        return text


def _invoke(case: Case, arguments: Sequence[NDArray]) -> Any:
    if case.code:
        return _written(case.code)(mx.np, mx.npx, *arguments)
    return register._imperative_invoke(
        handle(case.op).value,
        list(arguments),
        list(case.attrs),
        list(_attributes(case).values()),
        None,
        False,
        False,
    )


def _listed(results: Any) -> list[Any]:
    if isinstance(results, (list, tuple)):
        return [leaf for each in results for leaf in _listed(each)]
    return [results]


def _is_on_tape(result: Any) -> bool:
    try:
        return isinstance(result, NDArray) and bool(autograd.get_symbol(result))
    except mx.base.MXNetError:
        return False


def _as_numpy(result: Any) -> np.ndarray:
    return result.asnumpy() if isinstance(result, NDArray) else np.asarray(result)


def _array(
    each: Input, case: Case, random: np.random.RandomState, sample: int, dtype: str
) -> NDArray:
    shape = tuple(each.shape)
    if case.longer and not each.shared and sample % 2 and shape:
        shape = (shape[0] + 1,) + shape[1:]
    dtype = each.dtype or dtype or case.dtype
    if each.sort in _INTEGERS:
        values = random.randint(
            each.sort == 'length', max(each.top, 1) + (each.sort == 'length'), shape
        )
    elif each.sort in ('spd', 'lower'):
        values = random.uniform(-1, 1, shape)
        values = np.matmul(values, values.swapaxes(-1, -2)) + np.eye(shape[-1])
        values = np.tril(values) if each.sort == 'lower' else values
    else:
        low, high = {
            'real': (-2, 2),
            'positive': (0.3, 3),
            'state': (0.3, 3),
            'unit': (-0.9, 0.9),
            'large': (1.5, 3),
            'half': (0.5, 0.5),
        }[each.sort]
        values = (
            random.uniform(low, high, shape)
            if 'float' in dtype
            else random.randint(-3 if each.sort == 'real' else 0, 4, shape)
        )
    return _new(case)(values, dtype=dtype)


def _is_of_case(name: str, case: Case) -> bool:
    if case.code:
        return name != '_Copied'
    return name == ('_Block' if case.block else case.op)


def _how(scope, case: Case, results) -> tuple[str, str]:
    """How the calls were recorded, and why not in a batch."""
    types = [
        form.node_type
        for form in scope._recording.forms
        if _is_of_case(form.node_type.name.split('(')[0], case)
    ]
    types.sort(key=lambda node_type: not node_type.alone)  # first what is not batched
    if not types:
        if not any(isinstance(value, LazyArray) for each in results for value in each):
            return ONE_BY_ONE, 'cannot be recorded; runs at once'
        return RULE, 'by way of other operators'
    node_type = types[0]
    if node_type.alone:
        return ONE_BY_ONE, node_type.reason
    return (WHOLE, '') if node_type.whole else (RULE, '')


# --- comparison ----------------------------------------------------------------------------------


def _difference(
    case: Case,
    expected: Run,
    found: Run,
    exact: Optional[Run] = None,
    sums: Sequence[float] = (),
) -> str:
    """In what two runs differ; `exact` is one in float64, if there is one, `sums` see `Run`."""
    tolerance = _tolerance(case)
    if [len(each) for each in expected.results] != [len(each) for each in found.results]:
        return 'another number of results'
    pairs = [
        (f'result {call}.{position}', one, other)
        for call, (ones, others) in enumerate(zip(expected.results, found.results))
        for position, (one, other) in enumerate(zip(ones, others))
    ]
    pairs += [
        (f'gradient {position}', one, other)
        for position, (one, other) in enumerate(zip(expected.gradients, found.gradients))
    ]
    pairs += [
        (f'input {position} afterwards', one, other)
        for position, (one, other) in enumerate(zip(expected.inputs, found.inputs))
    ]
    judges = iter(
        [None] * len(pairs)
        if exact is None
        else [value for each in exact.results for value in each] + exact.gradients + exact.inputs
    )
    summed = dict(zip([f'gradient {position}' for position in range(len(sums))], sums))
    for (what, one, other), judge in zip(pairs, judges):
        if (one is None) != (other is None):
            return f'{what}: only one of the two has it'
        if one is not None and not _alike(one, other, judge, tolerance, summed.get(what, 0.0)):
            return f'{what}: {_shown(other)}, eagerly {_shown(one)}'
    return ''


def _tolerance(case: Case) -> dict[str, float]:
    """By dtype: what rounding may leave, of the largest number."""
    single = _SINGLE_PRECISION.get(case.op)
    if single and single.items() <= case.attrs.items():
        return dict(_TOLERANCE, float64=_TOLERANCE['float32'])
    return _TOLERANCE


def _alike(
    expected: np.ndarray,
    found: np.ndarray,
    exact: Optional[np.ndarray],
    tolerance: dict[str, float],
    summed: float = 0.0,
) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if not np.issubdtype(expected.dtype, np.floating) or not expected.size:
        return np.array_equal(expected, found)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)) or not np.array_equal(
        expected[~finite], found[~finite], equal_nan=True
    ):
        return False
    scale = max(float(np.abs(expected[finite], dtype=np.float64).max(initial=0)), 1e-2)
    # Of a sum of such terms one by one, which could be off by half as many as there are of them.
    rounding = 4 * float(np.finfo(expected.dtype).eps) * summed
    allowed = max(tolerance[expected.dtype.name] * scale, rounding)

    def distance(one, other):
        return float(np.abs(one[finite].astype(np.float64) - other[finite]).max(initial=0))

    if distance(found, expected) <= allowed:
        return True
    if exact is None or exact.shape != found.shape or not np.isfinite(exact[finite]).all():
        return False
    return distance(found, exact) <= max(3 * distance(expected, exact), allowed)


def _shown(array: np.ndarray) -> str:
    return f'{array.dtype.name}{array.shape} {np.array2string(array.ravel()[:6], precision=7)}'


# --- one case ------------------------------------------------------------------------------------


def outcome(case: Case, tell) -> dict[str, str]:
    """What came of a case: ``how`` it ran, and ``why``; and the ``difference``, if there is one."""
    for recorded in (True, False) if case.recorded else (False,):
        try:
            expected = Call(case).run(False, recorded)
            break
        except Exception as error:
            answer = {'how': EAGER_FAILS, 'why': _first(error)}
            forget_errors()
    else:
        return answer
    tell('batched')
    return _batched_outcome(case, expected, recorded, tell)


def is_sound() -> bool:
    """Whether MXNet still computes: once oneDNN could not, MXNet tries the same again for ever."""
    try:
        for dtype in ('float32', 'float64'):
            mx.nd.softmax(mx.nd.identity(mx.nd.ones((2, 3), dtype=dtype))).asnumpy()
        return True
    except mx.base.MXNetError:
        return False


def forget_errors() -> None:
    """MXNet's engine may raise what went wrong at any later call."""
    for _ in range(20):
        try:
            mx.nd.waitall()
            return
        except Exception:
            pass


def one_way(case: Case, only: str) -> dict[str, str]:
    """Run a case ``eager`` or ``batched``, to see whether that ends the process."""
    for recorded in {case.recorded, False}:
        try:
            Call(case).run(only == 'batched', recorded)
            mx.nd.waitall()
        except Exception as error:
            return {'how': EAGER_FAILS, 'why': _first(error)}
    return {'how': only, 'why': ''}


def own_gradient(case: Case) -> dict[str, str]:
    """Whether the operator gives a gradient, in eager code, though that of its results is zero;
    what it leaves in memory as it was is none, and neither is zero times infinity."""
    try:
        first = _gradients_of_zero(case, _JUNK[0])
        second = _gradients_of_zero(case, _JUNK[1]) if any(map(np.any, first)) else first
    except Exception as error:
        forget_errors()
        return {'how': EAGER_FAILS, 'why': _first(error)}
    own = any(
        (np.isfinite(one) & (one != 0) & (one == other)).any() for one, other in zip(first, second)
    )
    return {'how': OWN if own else RULE, 'why': ''}


def _gradients_of_zero(case: Case, byte: int) -> list[np.ndarray]:
    with _memory_of(byte):
        run = Call(case._replace(few=False), times=0.0).run(False, True)
    return [gradient for gradient in run.gradients if gradient is not None]


def _batched_outcome(case: Case, expected: Run, recorded: bool, tell) -> dict[str, str]:
    call = Call(case)
    try:
        found = call.run(True, recorded)
    except EdbError as error:
        forget_errors()
        if isinstance(error, BatchError):
            return {'how': REFUSED, 'why': '', 'difference': f'fails: {error}'}
        return {'how': REFUSED, 'why': str(error).splitlines()[0]}
    except Exception:
        forget_errors()
        return {'how': REFUSED, 'why': '', 'difference': f'fails: {traceback.format_exc(limit=-3)}'}
    difference = _difference(case, expected, found)
    tell('eager')
    if difference and _is_random(case, expected, recorded):
        difference = _of_shapes(expected, found)
    elif difference:
        exact = _exact(case, recorded)
        sums = (exact or Call(case).run(False, recorded, sums=True)).sums
        difference = _difference(case, expected, found, exact, sums)
    return dict(zip(('how', 'why'), call.how), difference=difference)


def _is_random(case: Case, expected: Run, recorded: bool) -> bool:
    """Whether eager code gives something else each time, or might: noise, or what lay in memory."""
    if op_of(case.op).draws(case.attrs, case.training):
        return True
    for byte in _JUNK:
        with _memory_of(byte):
            again = Call(case).run(False, recorded)
        if _difference(case, expected, again):
            return True
    return False


@contextmanager
def _memory_of(byte: int) -> Iterator[None]:
    """Let glibc fill memory that it hands out, or takes back, with a byte (or its complement)."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_PERTURB, byte)
    try:
        yield
    finally:
        libc.mallopt(_M_PERTURB, 0)


def _exact(case: Case, recorded: bool) -> Optional[Run]:
    if 'float' not in case.dtype:
        return None
    if case.code:
        case = case._replace(code=re.sub("'float(16|32)'", "'float64'", case.code))
    attrs = {
        key: 'float64' if key == 'dtype' and 'float' in value else value
        for key, value in case.attrs.items()
    }
    try:
        return Call(case._replace(attrs=attrs), 'float64').run(False, recorded, sums=True)
    except Exception:
        forget_errors()
        return None


def _of_shapes(expected: Run, found: Run) -> str:
    shapes = [
        [[(value.shape, value.dtype.name) for value in each] for each in run.results]
        for run in (expected, found)
    ]
    return '' if shapes[0] == shapes[1] else f'{shapes[1]}, eagerly {shapes[0]}'


def _first(error: Exception) -> str:
    lines = [
        line.strip() for line in str(error).splitlines() if 'Error' in line or 'failed' in line
    ]
    return (lines or [type(error).__name__])[-1][:200]


def main() -> None:
    """Answer cases in a child: another one, which has imported everything, takes the place of one
    that has died. MXNet may print what it likes."""
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        child = os.fork()
        if not child:
            _answer(answers)
        if os.waitpid(child, 0)[1] == 0:
            return


def _answer(answers: int) -> None:
    """Read cases until there are none, or until this process should not be used again."""

    def tell(**what: Any) -> None:
        os.write(answers, (json.dumps(what) + '\n').encode())

    def phase(name: str, calls: int) -> None:
        # A process that takes longer is ended: eager MXNet draws or loops for ever on some cases.
        signal.setitimer(signal.ITIMER_PROF, SECONDS + calls * SECONDS_A_CALL)
        tell(phase=name)

    tell(child=os.getpid())
    for text in os.fdopen(os.dup(0), 'rb', 0):
        fields = json.loads(text)
        only = fields.pop('only')
        case = Case(**dict(fields, inputs=[Input(*each) for each in fields['inputs']]))
        (mx.npx.set_np if case.code else mx.npx.reset_np)()
        phase(only or 'eager', case.calls)
        try:
            result = (
                outcome(case, partial(phase, calls=case.calls))
                if not only
                else own_gradient(case)
                if only == OWN
                else one_way(case, only)
            )
        except Exception:
            result = {'how': REFUSED, 'why': '', 'difference': traceback.format_exc()}
        sound = is_sound()
        signal.setitimer(signal.ITIMER_PROF, 0)
        tell(**result, again=not sound)
        if not sound:
            os._exit(1)
    os._exit(0)


if __name__ == '__main__':
    main()
