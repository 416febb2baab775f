"""One case: a program that is drawn, compiled, and compared with eager."""

import importlib.util
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import gluon_edbatch as edb

from .constructs import constructs, depth
from .source import Program, Writer

SAMPLES = 6
SECONDS = 20.0  # of processor time, within which a program is to be compiled
_TOLERANCE, _OF_GRADIENTS = 1e-5, 1e-4
# What is further from a threshold than this, relative to inputs and parameters, must be decided as
# eager decides it. So many times they are changed by so little, to see what eager makes of that.
_PERTURBED, _TIMES = 5e-6, 12
SAME, REFUSED, NEAR, DIFFERS, EAGER_FAILS, DIED = (
    'same',
    'refused',
    'near a threshold',
    'differs',
    'eager fails',
    'died',
)


EAGER, PROGRAM = 'eager', 'program'
Say = Callable[[str], None]


def _silent(_: str) -> None:
    pass


class Outcome(NamedTuple):
    """What came of a case.

    Attributes
    ----------
    number : int
    how : str
        One of the constants above.
    why : str
        Of a refusal, difference or error.
    constructs : dict
        How often each is in the source.
    facts : dict
        Of the program: blocks, networks, branches, whether samples parted, seconds.
    """

    number: int
    how: str
    why: str
    constructs: dict[str, int]
    facts: dict[str, float]


class TooLong(BaseException):
    """A program is not compiled after `SECONDS`; no exception that code may catch."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit the processor time of what runs inside the ``with``."""

    def end(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, end)
    left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, left)
        signal.signal(signal.SIGVTALRM, before)


class Difference(Exception):
    """Two results differ."""


def run_case(seed: int, number: int, say: Say = _silent) -> Outcome:
    """Draw, compile, compare; `say` is called with who computes: the process may not survive."""
    program = Writer(f'{seed} {number}').program()
    with tempfile.TemporaryDirectory() as folder:
        how, why, facts = judged(program, Path(folder), number, say)
    facts['depth'] = depth(program.source)
    return Outcome(number, how, why, dict(constructs(program.source)), facts)


def constructs_of(seed: int, number: int) -> dict[str, int]:
    """Count the constructs in a case's program."""
    return dict(constructs(Writer(f'{seed} {number}').program().source))


def judged(
    program: Program, folder: Path, number: int, say: Say = _silent
) -> tuple[str, str, dict[str, float]]:
    """What comes of a program, why, and facts about it."""
    facts: dict[str, float] = {}
    module = loaded(program.source, folder)
    net = module.Net()
    net.initialize()
    _fill(net, number)
    samples = [_sample(program.arguments, number, sample) for sample in range(SAMPLES)]
    try:
        expected = [net(*sample) for sample in samples]
        mx.nd.waitall()
    except Exception as error:
        return EAGER_FAILS, _named(error), facts
    try:
        begin = time.perf_counter()
        with limited(SECONDS):
            compiled = edb.compile_program(net, samples[0])
        facts['seconds'] = time.perf_counter() - begin
    except edb.ProgramError as error:
        return REFUSED, str(error), facts
    except TooLong:
        return DIED, f'it is not compiled after {SECONDS:.0f} s', facts
    except Exception as error:
        return DIFFERS, f'compile_program: {_named(error)}', facts
    facts.update(_facts(compiled))
    why = _compared(net, compiled, samples, expected, facts)
    if not why and number % 2 == 0:
        why = _compared_gradients(net, compiled, samples, facts, say)
    if not why and number % 4 == 1:
        why = _compared_when_loaded(compiled, folder, samples, expected)
        facts['loaded'] = 1
    if not why and number % 4 == 3:
        why = _reports(net, compiled, samples, folder)
    if why and _is_near(net, samples, expected):
        return NEAR, why, facts
    return (DIFFERS, why, facts) if why else (SAME, '', facts)


def loaded(source: str, folder: Path) -> Any:
    """A module; programs are made of sources in files."""
    name = f'drawn_{folder.name}'
    path = folder / f'{name}.py'
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def _fill(net: gluon.Block, seed: int) -> None:
    """Let parameters have values with which samples part."""
    drawn = np.random.RandomState(seed)
    for name, parameter in sorted(net.collect_params().items()):
        values = drawn.randn(*parameter.shape) * 0.7
        if name.endswith(('gamma', 'var')):
            values = 0.5 + np.abs(values)
        parameter.set_data(mx.nd.array(values))


def _sample(arguments: tuple[str, ...], seed: int, number: int) -> tuple[Any, ...]:
    drawn = np.random.RandomState(1000 * seed % 2**31 + number)
    made = {
        'x': drawn.randn(1, 4),
        'seq': drawn.randn(3, 4),
        'ids': drawn.randint(0, 3, (1,)),
    }
    return tuple([mx.nd.array(made[name]) for name in arguments])


def _facts(compiled: Any) -> dict[str, float]:
    """From what a program shows of itself."""
    first, *lines = str(compiled).splitlines()
    blocks, networks = map(int, re.findall(r'\d+', first)[:2])
    branches = sum([line.strip().startswith('if ') for line in lines])
    return {'blocks': blocks, 'networks': networks, 'branches': branches}


# --- comparing -----------------------------------------------------------------------------------


def _compared(
    net: gluon.Block,
    compiled: Any,
    samples: list[Any],
    expected: list[Any],
    facts: dict[str, float],
) -> str:
    """What differs: all samples at once, and each alone."""
    before = [[array.asnumpy() for array in sample] for sample in samples]
    try:
        results = compiled(samples)
        facts['parted'] = sum([min(ways) > 0 for ways in compiled.report().paths.values()])
        for number, (sample, wanted, got) in enumerate(zip(samples, expected, results)):
            same(f'sample {number}', wanted, got, _TOLERANCE)
            (alone,) = compiled([sample])
            same(f'sample {number} alone', wanted, alone, _TOLERANCE)
    except Difference as difference:
        return str(difference)
    except Exception as error:
        return f'the program is called: {_named(error)}'
    for number, (sample, arrays) in enumerate(zip(samples, before)):
        if not all(map(np.array_equal, [array.asnumpy() for array in sample], arrays)):
            return f'the arrays of sample {number} are changed'
    return ''


def same(where: str, expected: Any, got: Any, tolerance: float = _TOLERANCE) -> None:
    """Raise what differs."""
    if isinstance(expected, mx.nd.NDArray):
        _same_arrays(where, expected, got, tolerance)
    elif isinstance(expected, (list, tuple)):
        if _form(got) != _form(expected) or len(got) != len(expected):
            raise Difference(f'{where}: {_brief(expected)} became {_brief(got)}')
        for place, pair in enumerate(zip(expected, got)):
            same(f'{where}[{place}]', *pair, tolerance)
    elif isinstance(expected, dict):
        if type(got) is not dict or list(got) != list(expected):
            raise Difference(f'{where}: {_brief(expected)} became {_brief(got)}')
        for key, value in expected.items():
            same(f'{where}[{key!r}]', value, got[key], tolerance)
    elif _kind(expected) == 'int' and _kind(got) == 'float' and expected == got:
        pass  # min or max of an integer and a float: a program's number has one type
    elif _kind(expected) != _kind(got):
        raise Difference(f'{where}: {_brief(expected)} became {_brief(got)}')
    elif _kind(expected) == 'float':
        apart = abs(expected - got)
        if not apart <= tolerance * max(1.0, abs(expected)) and not expected == got:
            raise Difference(f'{where}: {expected} became {got}')
    elif expected != got:
        raise Difference(f'{where}: {expected} became {got}')


def _form(value: Any) -> Any:
    """A list or tuple's type; a namedtuple of a program that was loaded has a class of its own."""
    kind = type(value)
    return (kind.__name__, kind._fields) if hasattr(kind, '_fields') else kind


def _same_arrays(where: str, expected: Any, got: Any, tolerance: float = _TOLERANCE) -> None:
    if not isinstance(got, mx.nd.NDArray):
        raise Difference(f'{where}: an array became {_brief(got)}')
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        raise Difference(
            f'{where}: {expected.dtype.__name__}{expected.shape} became '
            f'{got.dtype.__name__}{got.shape}'
        )
    wanted, had = expected.asnumpy(), got.asnumpy()
    scale = max(1.0, float(np.abs(wanted).max()))
    if not np.allclose(wanted, had, rtol=0, atol=tolerance * scale, equal_nan=True):
        raise Difference(f'{where}: {wanted.tolist()} became {had.tolist()}')


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return 'bool'
    if isinstance(value, (int, np.integer)):
        return 'int'
    return 'float' if isinstance(value, (float, np.floating)) else type(value).__name__


def _brief(value: Any) -> str:
    if isinstance(value, mx.nd.NDArray):
        return f'an array {value.shape}'
    return f'{type(value).__name__} {value!r}'[:200]


def _named(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f'{type(error).__name__}: {" / ".join(lines[:3])}'[:600]


def _compared_when_loaded(
    compiled: Any, folder: Path, samples: list[Any], expected: list[Any]
) -> str:
    """What differs when the program was written and loaded."""
    try:
        loaded_anew = edb.load_program(edb.export(compiled, folder / 'bundle'))
        for number, pair in enumerate(zip(expected, loaded_anew(samples))):
            same(f'sample {number} of the loaded program', *pair)
    except Difference as difference:
        return str(difference)
    except Exception as error:
        return f'the program is written, loaded and called: {_named(error)}'
    return ''


def _reports(net: gluon.Block, compiled: Any, samples: list[Any], folder: Path) -> str:
    """Return the error that a report of the program or a scope raises, at any time of a run."""

    def look() -> None:
        for told in (scope, scope.report(), scope.explain()):
            str(told), repr(told)
        edb.visualize.explanation(scope, folder / 'explanation.svg')

    scope = edb.batching()
    try:
        edb.visualize.program(compiled, folder / 'program.svg')
        for told in (compiled, compiled.report()):
            str(told), repr(told)
        look()
        with scope:
            results = []
            for sample in samples:
                results.append(net(*sample))
                look()
        edb.forward(results)
        look()
    except Exception as error:
        return f'a report: {_named(error)}'
    return ''


# --- gradients -----------------------------------------------------------------------------------


def _compared_gradients(
    net: gluon.Block, compiled: Any, samples: list[Any], facts: dict[str, float], say: Say
) -> str:
    """What differs in those of all parameters, summed over samples."""
    say(EAGER)  # whose backward ends the process now and then
    wanted = _gradients(net, lambda: [net(*sample) for sample in samples])
    if wanted is None:  # arrays changed in place, or nothing that has a gradient
        return ''
    say(PROGRAM)
    facts['gradients'] = 1
    try:
        got = _gradients(net, lambda: compiled(samples))
    except Exception as error:
        return f'gradients: {_named(error)}'
    if got is None:
        return 'gradients: the program has none'
    for name, expected in wanted.items():
        try:
            _same_arrays(f'gradient of {name}', expected, got[name], _OF_GRADIENTS)
        except Difference as difference:
            return str(difference)
    return ''


def _gradients(net: gluon.Block, run: Callable[[], list[Any]]) -> Optional[dict[str, Any]]:
    parameters = net.collect_params()
    for parameter in parameters.values():
        if parameter.grad_req != 'null':
            parameter.zero_grad()
    try:
        with autograd.record(train_mode=False):
            total = sum([_weighted(result) for result in run()])
        total.backward(train_mode=False)  # or BatchNorm has the gradient of a training batch
    except (mx.base.MXNetError, AttributeError):
        return None
    return {
        name: parameter.grad().copy()
        for name, parameter in parameters.items()
        if parameter.grad_req != 'null'
    }


def _weighted(result: Any) -> Any:
    """All arrays of a result as one number, each element with a weight of its own."""
    arrays: list[Any] = []
    _arrays_of(result, arrays)
    total: Any = 0
    for place, array in enumerate(arrays):
        weights = np.cos(np.arange(array.size) + place).reshape(array.shape)
        total = total + (array * mx.nd.array(weights)).sum()
    return total


def _arrays_of(value: Any, found: list[Any]) -> None:
    if isinstance(value, mx.nd.NDArray):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _arrays_of(each, found)
    elif isinstance(value, dict):
        _arrays_of(list(value.values()), found)


# --- near a threshold ----------------------------------------------------------------------------


def _is_near(net: gluon.Block, samples: list[Any], expected: list[Any]) -> bool:
    """Whether eager gives something else, too, if all that it computes with is changed by less than
    what counts as far from a threshold."""
    drawn = np.random.RandomState(0)
    kept = {name: each.data().copy() for name, each in net.collect_params().items()}
    try:
        for _ in range(_TIMES):
            for name, parameter in net.collect_params().items():
                parameter.set_data(_moved(kept[name], drawn))
            for sample, wanted in zip(samples, expected):
                moved = [_moved(array, drawn) for array in sample]
                same('', wanted, net(*moved), 100 * _PERTURBED)
    except Difference:
        return True
    finally:
        for name, parameter in net.collect_params().items():
            parameter.set_data(kept[name])
    return False


def _moved(array: Any, drawn: np.random.RandomState) -> Any:
    return array * mx.nd.array(1 + _PERTURBED * drawn.randn(*array.shape))


def reason(refusal: str) -> str:
    """A refusal without what is different each time: files, lines, names and numbers."""
    text = refusal.split('\n')[-1].strip()
    return re.sub(r'\(\d[^)]*\)|\b\d+\b', '#', text)[:160]
