"""Batched equals eager: outputs and gradients, in one helper."""

import itertools
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from ..api.functional import forward
from ..api.mixin import eagerly
from ..api.scope import recording
from ..brief import brief
from ..errors import EdbError
from ..mx.parameters import context_of
from ..record.lazy import LazyArray
from ..schedule import Scheduler
from ..subgraph.options import compile_options, current_options
from .closeness import (
    Exact,
    Measured,
    Suspect,
    comparable,
    differences,
    ensure,
    judge,
    worst_by_eager,
    worst_by_float64,
)
from .copies import Copy, eager_in_float64, in_float64, nudged, other_parameters, other_samples

SCHEDULERS = ('depth', 'agenda', 'fsm', 'sufficient', 'unbatched')
# Gradients of functions so many times as steep are rounded otherwise, unless by a power of two.
_OTHER_HEADS = (1.375, 0.8125)

_HybridState = Tuple[gluon.HybridBlock, bool, Dict[str, Any]]


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
    """Raise ``AssertionError`` unless batched results and gradients are eager Gluon's.

    The model runs on one sample after the other without any scope, and on all of them inside
    ``batching(scheduler)``. Compared are the structure of the results (lists and tuples count as
    equal: a hybridized Gluon block returns a list for a tuple), their shapes, dtypes and values,
    and under ``autograd.record()`` the gradients of a random linear function of all
    results: those of every parameter, and those of the arrays among `inputs` and in the samples
    that have one (``attach_grad``). Row_sparse gradients are compared as dense ones: whether rows
    that get zeros are there depends in eager Gluon, too, on what is hybridized.

    Parameters
    ----------
    model : Block or function
        What to call with a sample; it returns an NDArray, or nested lists, tuples and dicts of
        them.
    samples : iterable
        One argument of the model each; nested lists, tuples and dicts of them are searched for
        arrays with gradients.
    unpack : bool, default False
        Samples are tuples of arguments.
    blocks : sequence of Block, optional
        The blocks that the model uses. Needed if it is a function, which cannot be asked.
    inputs : sequence of NDArray
        Further arrays whose gradients are compared.
    schedulers : sequence of (str or Scheduler)
        Each of them is compared.
    hybridized : sequence of bool
        Whether the blocks are hybridized, in both runs. They are left as they were.
    training : sequence of bool
        True runs under ``autograd.record()`` and compares gradients, too; False runs without.
        Dropout that is switched on cannot be compared.
    rtol : float, optional
        Difference allowed, relative to the largest magnitude in an array; 1e-5 for float32 and
        1e-10 for float64 by default. Where there is more, the model runs in float64, too, on
        copies of its parameters and of the samples: batched must then be no further from float64
        than three times as far as eager (in the worst of three runs whose numbers differ in the
        last bit), or than `rtol` of what the samples add to a gradient, which may cancel to
        nearly nothing; and batched and eager must agree in float64. A model that cannot run in
        float64 is judged by the difference alone.
    atol : float, default 0
        Difference allowed in addition.
    seed : int, default 0
        Of the random linear function.

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
    before = [_hybrid_state(block) for block in blocks]
    try:
        for active, train in itertools.product(hybridized, training):
            for block in blocks:
                block.hybridize(active)
            comparison.run(train, active, schedulers)
    finally:
        for states in before:
            _restore(states)


def _hybrid_state(block: gluon.Block) -> List[_HybridState]:
    """Hybridization of a block and its descendants, parents first."""
    states = []
    if isinstance(block, gluon.HybridBlock):
        states.append((block, block._active, dict(block._flags)))
    for child in block._children.values():
        states += _hybrid_state(child)
    return states


def _restore(states: Sequence[_HybridState]) -> None:
    for block, active, flags in states:
        block.hybridize(active, **flags)


class _Comparison:
    """Eager runs against batched ones; what is further apart than `rtol` is judged in float64."""

    def __init__(self, model: '_Model', rtol: Optional[float], atol: float):
        self.model, self.rtol, self.atol = model, rtol, atol
        self._exact: Dict[bool, Union[Exact, Exception]] = {}  # for inference and for training

    def run(self, train: bool, active: bool, schedulers: Sequence[Any]) -> None:
        """Compare all schedulers with one eager run."""
        eager = [self.model.eager(train)]
        for number, scheduler in enumerate(schedulers):
            native = current_options().native and (number + active) % 2 == 0  # each in half of them
            with compile_options(native=native):
                found = self.model.batched(train, scheduler)
                case = (
                    f'scheduler {getattr(scheduler, "name", scheduler)}, '
                    f'{"" if active else "not "}hybridized, '
                    f'{"training" if train else "inference"}, '
                    f'{"" if native else "no "}native operators'
                )
                suspects = differences(found, eager[0], case, self.rtol, self.atol)
                if suspects:
                    self._judge(suspects, found, eager, train, scheduler, case)

    def _judge(
        self,
        suspects: List[Suspect],
        found: Measured,
        eager: List[Measured],
        train: bool,
        scheduler: Any,
        case: str,
    ) -> None:
        exact = self._exact_unless(found, train)
        if len(eager) == 1:
            eager += [self.model.eager(train), *self.model.eager_rounded_otherwise(train)]
        if differences(eager[1], eager[0], f'{case}: eager', self.rtol, self.atol):
            exact = ValueError('eagerly it gives something else each time it is called')
        if isinstance(exact, Exception):
            raise AssertionError(worst_by_eager(suspects, case, exact))
        again = self.model.batched_in_float64(train, scheduler)
        verdicts = judge(
            suspects,
            eager,
            exact,
            again if again is not None and comparable(again, found) else None,
        )
        if verdicts:
            raise AssertionError(worst_by_float64(verdicts, case))

    def _exact_unless(self, found: Measured, train: bool) -> Union[Exact, Exception]:
        """What the model gives in float64, or why that is not known."""
        if any(array.dtype == np.float64 for array in found.results.values()):
            return ValueError('it runs in float64 already')
        if train not in self._exact:
            self._exact[train] = self.model.exact(train)
        exact = self._exact[train]
        if isinstance(exact, Exact) and not comparable(exact, found):
            return ValueError('its results have other shapes in float64')
        return exact


class _Model:
    """A model and its samples, to be run in several ways."""

    def __init__(
        self,
        model: Callable[..., Any],
        samples: List[Any],
        unpack: bool,
        blocks: Sequence[gluon.Block],
        inputs: Sequence[NDArray],
        seed: int,
    ) -> None:
        self.model, self.samples, self.unpack = model, samples, unpack
        self.blocks, self.seed = blocks, seed
        self.inputs = _unique(list(inputs) + _arrays_with_gradient(samples))
        self.ctx = next((ctx for ctx in map(context_of, blocks) if ctx is not None), None)

    def eager(self, train: bool, factor: float = 1.0) -> Measured:
        """One sample after the other; the gradients of a linear function that is `factor` times
        as steep, divided by that."""

        def run() -> Any:
            with eagerly(self.ctx):
                return [self._call(sample) for sample in self.samples]

        made = self._measure(train, run, factor)
        return made._replace(
            gradients={
                name: gradient / gradient.dtype.type(factor)
                for name, gradient in made.gradients.items()
            }
        )

    def batched(self, train: bool, scheduler: Any) -> Measured:
        """All samples in one scope."""

        def run() -> Any:
            with recording(scheduler):
                results = [self._call(sample) for sample in self.samples]
            promised = {
                path: (value.shape, value.dtype, value.ctx)
                for path, value in _leaves(results)
                if isinstance(value, LazyArray)
            }
            results = forward(results)
            for path, value in _leaves(results):
                got = (value.shape, value.dtype, value.ctx)
                ensure(
                    promised.get(path, got) == got,
                    f'result{path} was promised as {promised.get(path)} and is {got}',
                )
            return results

        return self._measure(train, run)

    def eager_rounded_otherwise(self, train: bool) -> List[Measured]:
        """What eager could have given as well: with other heads, and with numbers that differ in
        the last bit. A single run may be close to float64 by chance."""
        made = []
        for seed, factor in enumerate(_OTHER_HEADS):
            with self._of_copies(nudged(seed)) as model:
                made.append(model.eager(train, factor))
        return made

    def exact(self, train: bool) -> Union[Exact, Exception]:
        """Eager results and gradients in float64, or why there are none."""
        try:
            with self._of_copies(in_float64) as model, eager_in_float64(self.ctx):
                return model._one_by_one(train)
        except Exception as error:  # of the user's model, which need not know float64
            return error

    def batched_in_float64(self, train: bool, scheduler: Any) -> Optional[Measured]:
        """The same of a scope; None if the model cannot run so, as where it reads arrays from
        elsewhere than its samples and parameters."""
        try:
            with self._of_copies(in_float64) as model:
                return model.batched(train, scheduler)
        except (EdbError, mx.base.MXNetError):
            return None

    @contextmanager
    def _of_copies(self, copy_of: Copy) -> Iterator['_Model']:
        states = [state for block in self.blocks for state in _hybrid_state(block)]
        copies: Dict[int, NDArray] = {}
        model = copy(self)
        model.samples = other_samples(self.samples, copy_of, copies)
        model.inputs = [copies.get(id(array), array) for array in self.inputs]
        try:
            with other_parameters(self.blocks, copy_of):
                for block in self.blocks:
                    block.hybridize(False)
                yield model
        finally:
            _restore(states)

    def _one_by_one(self, train: bool) -> Exact:
        results: Dict[str, np.ndarray] = {}
        gradients: Dict[str, np.ndarray] = {}
        added: Dict[str, np.ndarray] = {}
        generator = np.random.RandomState(self.seed)
        for number, sample in enumerate(self.samples):
            run = self._measure(
                train,
                partial(self._call, sample),
                generator=generator,
                path=f'[{number}]',
            )
            results.update(run.results)
            for name, gradient in run.gradients.items():
                gradient = gradient.astype(np.float64)
                gradients[name] = gradients.get(name, 0) + gradient
                added[name] = added.get(name, 0) + np.abs(gradient)
        return Exact(
            results, gradients, {name: float(array.max(initial=0)) for name, array in added.items()}
        )

    def _call(self, sample: Any) -> Any:
        return self.model(*sample) if self.unpack else self.model(sample)

    def _measure(
        self,
        train: bool,
        run: Callable[[], Any],
        factor: float = 1.0,
        generator: Optional[np.random.RandomState] = None,
        path: str = '',
    ) -> Measured:
        if not train:
            with autograd.pause(train_mode=False):
                return Measured(_by_path(run(), path), {})
        trained = self._trained()
        for _, array in trained:
            array.grad[:] = 0
        with autograd.record():
            results = run()
            total = _total(results, factor, generator or np.random.RandomState(self.seed))
        if total is not None and trained:
            _backward(total)
        # After a deferred initialisation there are more of them.
        return Measured(
            _by_path(results, path), {name: _numpy(array.grad) for name, array in self._trained()}
        )

    def _trained(self) -> List[Tuple[str, NDArray]]:
        """Parameters and inputs that have a gradient, on each of their contexts."""
        named = [(f'input {i}', array) for i, array in enumerate(self.inputs)]
        parameters = {
            id(parameter): parameter
            for block in self.blocks
            for parameter in block.collect_params().values()
        }
        for parameter in parameters.values():
            if parameter.grad_req != 'null' and parameter._data is not None:
                named += [
                    (f'{parameter.name} on {array.ctx}', array) for array in parameter.list_data()
                ]
        return named


def _total(results: Any, factor: float, generator: np.random.RandomState) -> Optional[NDArray]:
    """A random linear function of all results, so that no gradient comes about by chance; its
    coefficients are the same in all dtypes."""
    terms: Dict[tuple, List[NDArray]] = {}
    for _, value in _leaves(results):
        if np.issubdtype(value.dtype, np.floating):
            value = value.as_nd_ndarray().reshape((-1,))
            heads = generator.uniform(0.5, 1.5, value.shape).astype(np.float16)
            weights = mx.nd.array(
                heads.astype(np.float64) * factor, ctx=value.ctx, dtype=value.dtype
            )
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


def _arrays_with_gradient(value: Any) -> List[NDArray]:
    if isinstance(value, NDArray):
        return [value] if value.grad is not None else []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays_with_gradient(item)]
    return []


def _unique(arrays: Sequence[NDArray]) -> List[NDArray]:
    return list({id(array): array for array in arrays}.values())


def _leaves(value: Any, path: str = '') -> List[Tuple[str, Any]]:
    """The arrays in nested results, each with where it is."""
    if isinstance(value, NDArray):
        return [(path, value)]
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f'{path}[{key!r}]')]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, f'{path}[{i}]')]
    raise AssertionError(f'result{path} is {brief(value)}, not an array')


def _by_path(results: Any, path: str = '') -> Dict[str, np.ndarray]:
    return {path: _numpy(value) for path, value in _leaves(results, path)}


def _numpy(array: NDArray) -> np.ndarray:
    return array.asnumpy().copy()
