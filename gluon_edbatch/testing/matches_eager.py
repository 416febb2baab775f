"""Assert that batched outputs and gradients equal eager ones."""

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cache
from numbers import Number
from typing import Any, Callable, Optional, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.schedule import Scheduler
from gluon_edbatch_core.short_repr import brief

from ..api.eagerly import eagerly
from ..api.functional import forward
from ..api.scope import batching
from ..mx.parameters import context_of
from ..record.lazy import LazyArray
from ..subgraph.options import compile_options, current_options
from .closeness import (
    KNOBS,
    ROUNDING,
    Measured,
    Suspect,
    comparable,
    differences,
    ensure,
    judge,
    judge_without_float64,
    scales_of_terms,
    worst,
)
from .copies import parameters_in_float64, parameters_of, samples_in_float64, unique
from .float64 import Noise, computing_in_float64, recording_in_float64

SCHEDULERS = ('depth', 'agenda', 'fsm', 'sufficient', 'unbatched')
_NOISY_RUNS = 2
_PLAIN = (Number, np.ndarray, np.generic, str, bytes)


def assert_matches_eager(
    model: Callable,
    samples: Iterable[Any],
    *,
    unpack: bool = False,
    blocks: Optional[Sequence[gluon.Block]] = None,
    inputs: Sequence[NDArray] = (),
    schedulers: Sequence[Union[str, Scheduler]] = SCHEDULERS,
    hybridized: Sequence[bool] = (False, True),
    training: Sequence[bool] = (False, True),
    rtol: Optional[float] = None,
    atol: float = 0.0,
    seed: int = 0,
) -> None:
    """Raise ``AssertionError`` unless batched results and gradients match eager Gluon's.

    The model runs on one sample after the other outside any scope, with no block hybridized: that
    is the reference. Then it runs on all samples inside ``batching(scheduler)``. The results must
    agree in structure, shapes, dtypes and values. Under ``autograd.record()``, the gradients of a
    random linear function of all results must agree, too. Gradients of every parameter are
    compared, and those of arrays among `inputs` and in the samples that have one (``attach_grad``).

    Lists and tuples count as equal, as a hybridized Gluon block returns a list for a tuple.
    Row_sparse gradients are compared as dense ones: in eager Gluon, the rows of zeros depend on
    what is hybridized.

    If the two differ by more than the tolerance, the model also runs in float64, eagerly and
    batched, on copies of its parameters and samples. Arrays that the model makes or keeps
    elsewhere, such as ``nd.zeros`` or the states of ``begin_state``, are float64 in these runs. A
    difference passes if both of these hold:

    - Batched results are at most three times as far from the eager float64 run as eager ones, or
      within the tolerance times the scale. The scale is the largest magnitude in the array, or that
      of the terms that were added to it, if those are larger. Terms may cancel to nearly nothing,
      across samples or within one. A float64 run with random changes of the size of float32's
      rounding tells how large they are.
    - Batched and eager agree in float64, where hardly any rounding is left.

    A model that cannot run in float64 is judged by the tolerance alone, and the message says why.

    Parameters
    ----------
    model : Block or function
        What to call with a sample. It returns an NDArray, or nested lists, tuples and dicts of
        NDArrays and plain values. Integers, booleans, strings, None and NumPy arrays of them are
        compared by equality; other numbers are compared as float32 arrays are.
    samples : iterable
        Arguments of the model, one for each sample; nested lists, tuples and dicts of them are
        searched for arrays with gradients.
    unpack : bool, default False
        Whether samples are tuples of arguments.
    blocks : sequence of Block, optional
        The blocks that the model uses; needed if the model is a function.
    inputs : sequence of NDArray
        Further arrays whose gradients are compared.
    schedulers : sequence of (str or Scheduler)
        The schedulers to compare.
    hybridized : sequence of bool
        Whether the blocks are hybridized in batched runs; they are restored afterwards. If eager
        Gluon itself gives something else when hybridized, or raises an exception, a ``UserWarning``
        says so.
    training : sequence of bool
        True runs under ``autograd.record()`` and compares gradients, too; False runs without.
        Dropout that is switched on cannot be compared.
    rtol : float, optional
        The tolerance, relative to the largest magnitude in an array: 1e-5 for float32, 1e-2 for
        float16 and 1e-10 for float64 by default. float64 results that a model computes from
        float32 have the tolerance of float32.
    atol : float, default 0
        Difference allowed in addition.
    seed : int, default 0
        Seed of the random linear function.

    Warns
    -----
    UserWarning
        If eager Gluon, hybridized, differs from eager Gluon that is not.

    Examples
    --------
    >>> assert_matches_eager(net, [tree for tree, _ in minibatch])
    >>> assert_matches_eager(lambda tree, label: loss_fn(net(tree), label), minibatch,
    ...                      unpack=True, blocks=[net, loss_fn])
    """
    samples = list(samples)
    if blocks is None:
        blocks = [model] if isinstance(model, gluon.Block) else []
    comparison = _Comparison(_Model(model, samples, unpack, blocks, inputs, seed), rtol, atol)
    with comparison.model.hybridized(False):
        for active, train in itertools.product(hybridized, training):
            comparison.run(train, active, schedulers)


class _Comparison:
    """Compare eager and batched runs; judge differences above `rtol` in float64."""

    def __init__(self, model: '_Model', rtol: Optional[float], atol: float):
        self.model, self.rtol, self.atol = model, rtol, atol
        self.exact = cache(model.exact)

    def run(self, train: bool, active: bool, schedulers: Sequence[Any]) -> None:
        """Compare all schedulers with one eager run, in which nothing is hybridized."""
        mode = 'training' if train else 'inference'
        eager = self.model.eager(train)
        if active and self.model.blocks:
            self._compare_hybridized(eager, train, mode)
        for number, scheduler in enumerate(schedulers):
            native = current_options().native and (number + active) % 2 == 0  # each in half of them
            with compile_options(native=native), self.model.hybridized(active):
                found = self.model.batched(train, scheduler)
                case = (
                    f'scheduler {getattr(scheduler, "name", scheduler)}, '
                    f'{"" if active else "not "}hybridized, {mode}, '
                    f'{"" if native else "no "}native operators'
                )
                fault = self._fault(found, eager, train, case, scheduler)
                ensure(not fault, f'{fault}\n  {KNOBS}')

    def _compare_hybridized(self, eager: Measured, train: bool, mode: str) -> None:
        """Warn if hybridized blocks give something else in eager Gluon, too."""
        case = f'eager Gluon, hybridized, {mode}'
        try:
            with self.model.hybridized(True):
                found = self.model.eager(train)
            fault = self._fault(found, eager, train, case)
        except Exception as error:  # as Gluon refuses another number of arguments
            fault = f'{case}: {type(error).__name__}: {error}'
        if fault:
            warnings.warn(
                'eager Gluon differs from itself when it is hybridized, and batched is compared '
                f'with what is not hybridized. {fault}',
                stacklevel=4,
            )

    def _differences(self, found: Measured, expected: Measured, case: str) -> list[Suspect]:
        return differences(found, expected, case, self.rtol, self.atol, self.model.is_narrow())

    def _fault(
        self, found: Measured, eager: Measured, train: bool, case: str, scheduler: Any = None
    ) -> str:
        """Return what is wrong with a run, or nothing."""
        suspects = self._differences(found, eager, case)
        if not suspects:
            return ''
        exact = _alike(self.exact(train), found)
        if self._differences(self.model.eager(train), eager, f'{case}: eager'):
            exact = ValueError('eagerly it gives something else each time it is called')
        if isinstance(exact, Exception):
            return worst(judge_without_float64(suspects, exact), case)
        again = None
        if scheduler is not None:
            again = _alike(self.model.batched_in_float64(train, scheduler), found)
        return worst(judge(suspects, eager, exact, again), case)


def _alike(run: Union[Measured, Exception], other: Measured) -> Union[Measured, Exception]:
    """Return a run in float64, or why it cannot be compared with another run."""
    if isinstance(run, Measured) and not comparable(run, other):
        return ValueError('its results have other shapes in float64')
    return run


def _forget_failures() -> None:
    """Let MXNet raise what it still has to raise. Operators that share memory for temporary results
    with one that failed would fail, too."""
    with suppress(mx.MXNetError):
        mx.nd.waitall()


@dataclass(eq=False)
class _Model:
    """A model and its samples, to run in several ways."""

    model: Callable[..., Any]
    samples: list[Any]
    unpack: bool
    blocks: Sequence[gluon.Block]
    inputs: Sequence[NDArray]
    seed: int

    def __post_init__(self) -> None:
        trained = [array for array in _arrays(self.samples) if array.grad is not None]
        self.inputs = unique([*self.inputs, *trained])
        self.ctx = next((ctx for ctx in map(context_of, self.blocks) if ctx is not None), None)

    def is_narrow(self) -> bool:
        """Return whether any given number is less exact than float64."""
        given = [*parameters_of(self.blocks), *self.inputs, *_arrays(self.samples)]
        return any([np.dtype(one.dtype).name in ('float16', 'float32') for one in given])

    @contextmanager
    def hybridized(self, active: bool) -> Iterator[None]:
        """Hybridize all blocks, or none, inside the ``with``."""
        before: list[tuple[gluon.HybridBlock, bool, dict[str, Any]]] = []

        def note(block: gluon.Block) -> None:
            if isinstance(block, gluon.HybridBlock):
                before.append((block, block._active, dict(block._flags)))

        for block in self.blocks:
            block.apply(note)
        try:
            for block in self.blocks:
                block.hybridize(active)
            yield
        finally:
            for block, was_active, flags in reversed(before):  # children last
                block.hybridize(was_active, **flags)

    def eager(self, train: bool) -> Measured:
        """Run one sample after the other."""

        def run() -> Any:
            with eagerly(self.ctx):
                return [self._call(sample) for sample in self.samples]

        return self._measure(train, run)

    def batched(
        self, train: bool, scheduler: Any, scope: Callable[[Any], AbstractContextManager] = batching
    ) -> Measured:
        """Run all samples in one scope."""

        def run() -> Any:
            with scope(scheduler):
                results = [self._call(sample) for sample in self.samples]
            promised = {
                path: (value.shape, value.dtype, value.ctx)
                for path, value in _leaves(results)
                if isinstance(value, LazyArray)
            }
            results = forward(results)
            for path, value in _leaves(results):
                if path in promised:
                    got = (value.shape, value.dtype, value.ctx)
                    ensure(
                        promised[path] == got,
                        f'result{path} was promised as {promised[path]} and is {got}',
                    )
            return results

        return self._measure(train, run)

    def exact(self, train: bool) -> Union[Measured, Exception]:
        """Return eager results and gradients in float64, or why there are none."""
        try:
            with self._in_float64() as (model, known):
                with computing_in_float64(known, eager=True):
                    exact = model.eager(train)
                noisy = []
                for seed in range(_NOISY_RUNS):
                    with computing_in_float64(known, True, Noise(ROUNDING, seed)):
                        noisy.append(model.eager(train))
                return exact._replace(added=scales_of_terms(exact, noisy))
        except Exception as error:  # of the user's model, which need not know float64
            _forget_failures()
            return error

    def batched_in_float64(self, train: bool, scheduler: Any) -> Union[Measured, Exception]:
        """Run the samples in one scope in float64, or return why that is not possible."""
        try:
            with self._in_float64() as (model, known), computing_in_float64(known):
                return model.batched(train, scheduler, recording_in_float64)
        except Exception as error:
            _forget_failures()
            return error

    @contextmanager
    def _in_float64(self) -> Iterator[tuple['_Model', dict[int, NDArray]]]:
        """Give a model of copied parameters and samples, and the copies of arrays by their ids."""
        copies: dict[int, NDArray] = {}
        model = copy(self)
        model.samples = samples_in_float64(self.samples, copies)
        samples_in_float64(self.inputs, copies)  # operators then get the copies of all arrays
        model.inputs = [copies.get(id(array), array) for array in self.inputs]
        with parameters_in_float64(self.blocks), self.hybridized(False):
            yield model, copies

    def _call(self, sample: Any) -> Any:
        return self.model(*sample) if self.unpack else self.model(sample)

    def _measure(self, train: bool, run: Callable[[], Any]) -> Measured:
        if not train:
            with autograd.pause(train_mode=False):
                return _measured(run(), [])
        trained = self._trained()
        for _, array in trained:
            array.grad[:] = 0
        with autograd.record():
            results = run()
            total = _total(results, np.random.RandomState(self.seed))
        if total is not None and trained:
            _backward(total)
        # After a deferred initialisation there are more of them.
        return _measured(results, self._trained())

    def _trained(self) -> list[tuple[str, NDArray]]:
        """Return parameters and inputs that have a gradient, on each of their contexts."""
        named = [(f'input {i}', array) for i, array in enumerate(self.inputs)]
        for parameter in parameters_of(self.blocks):
            if parameter.grad_req != 'null' and parameter._data is not None:
                named += [
                    (f'{parameter.name} on {array.ctx}', array) for array in parameter.list_data()
                ]
        return named


def _total(results: Any, generator: np.random.RandomState) -> Optional[NDArray]:
    """Return a random linear function of all results, so that gradients are generic; its
    coefficients are the same in all dtypes."""
    terms: dict[tuple, list[NDArray]] = {}
    for value in _arrays(results):
        if np.issubdtype(value.dtype, np.floating) and value.size:
            value = value.as_nd_ndarray().reshape((-1,))
            heads = generator.uniform(0.5, 1.5, value.shape).astype(np.float16)
            weights = mx.nd.array(heads, ctx=value.ctx, dtype=value.dtype)
            terms.setdefault((np.dtype(value.dtype).name, value.ctx), []).append(
                (value * weights).sum()
            )
    sums = [mx.nd.add_n(*group) for group in terms.values()]
    if not sums:
        return None
    return mx.nd.add_n(*[one.astype('float64').as_in_context(sums[0].ctx) for one in sums])


def _backward(total: NDArray) -> None:
    try:
        total.backward()
    except mx.base.MXNetError as error:  # then gradients stay zero, eagerly and batched alike
        if 'not in a computational graph' not in str(error):
            raise


def _leaves(value: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield what nested lists, tuples and dicts hold, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f'{path}[{key!r}]')
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _leaves(item, f'{path}[{number}]')
    else:
        yield path, value


def _arrays(value: Any) -> list[NDArray]:
    """Return the NDArrays in nested lists, tuples and dicts."""
    return [leaf for _, leaf in _leaves(value) if isinstance(leaf, NDArray)]


def _measured(results: Any, trained: Sequence[tuple[str, NDArray]]) -> Measured:
    """Return results and gradients; numbers that are not whole are rounded as arrays are."""
    arrays: dict[str, np.ndarray] = {}
    plain: dict[str, Any] = {}
    for path, leaf in _leaves(results):
        name = f'result {path}'
        if isinstance(leaf, NDArray):
            arrays[name] = leaf.asnumpy()
        elif isinstance(leaf, (float, np.ndarray, np.generic)) and np.issubdtype(
            np.asarray(leaf).dtype, np.floating
        ):
            arrays[name] = np.array(leaf, np.float32)
        elif leaf is None or isinstance(leaf, _PLAIN):
            plain[name] = leaf
        else:
            raise AssertionError(
                f'result{path} is {brief(leaf)}, neither an array nor a plain value'
            )
    arrays.update({f'gradient of {name}': array.grad.asnumpy() for name, array in trained})
    return Measured(arrays, plain)
