"""Batched equals eager: outputs and gradients, in one helper."""
import itertools
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from ..functional import forward
from ..mixin import _context_of, _eager
from ..record.lazy import LazyArray
from ..schedule import Scheduler
from ..scope import batching
from ..static.options import compile_options

SCHEDULERS = ('depth', 'agenda', 'fsm', 'sufficient', 'unbatched')
# Of the largest magnitude in an array. A sum over a batch adds in another order than eager's.
_TOLERANCE = {'float16': 1e-2, 'float32': 1e-5, 'float64': 1e-10}
_SMALLEST_SCALE = 1e-3  # of an array whose exact values are zero, where only rounding is left


class _Run(NamedTuple):
    """What a run gave, as NumPy arrays: results by path, gradients by name."""

    results: Dict[str, np.ndarray]
    gradients: Dict[str, np.ndarray]


def assert_matches_eager(model: Callable, samples: Iterable[Any], *, unpack: bool = False,
                         blocks: Optional[Sequence[gluon.Block]] = None,
                         inputs: Sequence[NDArray] = (),
                         schedulers: Sequence[Union[str, Scheduler]] = SCHEDULERS,
                         hybridized: Sequence[bool] = (False, True),
                         training: Sequence[bool] = (False, True),
                         rtol: Optional[float] = None, seed: int = 0) -> None:
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
    hybridized : sequence of bool
        Whether the blocks are hybridized, in both runs. They are left as they were.
    training : sequence of bool
        True runs under ``autograd.record()`` and compares gradients, too; False runs without.
        Dropout that is switched on cannot be compared.
    rtol : float, optional
        Largest difference allowed, relative to the largest magnitude in an array; 1e-5 for
        float32 and 1e-10 for float64 by default.
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
    comparison = _Comparison(model, samples, unpack, blocks, inputs, rtol, seed)
    before = [_hybrid_state(block) for block in blocks]
    try:
        for active, train in itertools.product(hybridized, training):
            for block in blocks:
                block.hybridize(active)
            comparison.run(train, active, schedulers)
    finally:
        for states in before:
            _restore(states)


def _hybrid_state(block: gluon.Block) -> List[Tuple[gluon.HybridBlock, bool, dict]]:
    """Hybridization of a block and its descendants, parents first."""
    states = []
    if isinstance(block, gluon.HybridBlock):
        states.append((block, block._active, dict(block._flags)))
    for child in block._children.values():
        states += _hybrid_state(child)
    return states


def _restore(states) -> None:
    for block, active, flags in states:
        block.hybridize(active, **flags)


class _Comparison:
    def __init__(self, model, samples, unpack, blocks, inputs, rtol, seed):
        self.model, self.samples, self.unpack = model, samples, unpack
        self.blocks, self.rtol, self.seed = blocks, rtol, seed
        self.inputs = _unique(list(inputs) + _arrays_with_gradient(samples))

    def run(self, train: bool, active: bool, schedulers) -> None:
        expected = self._measure(train, self._eager)
        for number, scheduler in enumerate(schedulers):
            native = (number + active) % 2 == 0  # both ways are compared in half of the cases
            with compile_options(native=native):
                found = self._measure(train, lambda: self._batched(scheduler))
            case = (f'scheduler {getattr(scheduler, "name", scheduler)}, '
                    f'{"" if active else "not "}hybridized, '
                    f'{"training" if train else "inference"}, '
                    f'{"" if native else "no "}native operators')
            self._compare('result', found.results, expected.results, case)
            self._compare('gradient of', found.gradients, expected.gradients, case)

    # --- the two ways to run ---------------------------------------------------------------------

    def _call(self, sample):
        return self.model(*sample) if self.unpack else self.model(sample)

    def _eager(self):
        ctx = next((ctx for ctx in map(_context_of, self.blocks) if ctx is not None), None)
        with _eager(ctx):
            return [self._call(sample) for sample in self.samples]

    def _batched(self, scheduler):
        with batching(scheduler):
            results = [self._call(sample) for sample in self.samples]
        promised = {path: (value.shape, value.dtype, value.ctx)
                    for path, value in _leaves(results) if isinstance(value, LazyArray)}
        results = forward(results)
        for path, value in _leaves(results):
            got = (value.shape, value.dtype, value.ctx)
            _ensure(promised.get(path, got) == got,
                    f'result{path} was promised as {promised.get(path)} and is {got}')
        return results

    def _measure(self, train: bool, run: Callable[[], List[Any]]) -> _Run:
        if not train:
            with autograd.pause(train_mode=False):
                return _Run(_by_path(run()), {})
        trained = self._trained()
        for _, array in trained:
            array.grad[:] = 0
        with autograd.record():
            results = run()
            total = self._total(results)
        if total is not None and trained:
            _backward(total)
        # After a deferred initialisation there are more of them.
        return _Run(_by_path(results), {name: _numpy(array.grad)
                                        for name, array in self._trained()})

    def _total(self, results) -> Optional[NDArray]:
        """A random linear function of all results, so that no gradient comes about by chance."""
        generator, terms = np.random.RandomState(self.seed), {}
        for _, value in _leaves(results):
            if np.issubdtype(value.dtype, np.floating):
                weights = mx.nd.array(generator.uniform(0.5, 1.5, value.shape), ctx=value.ctx,
                                      dtype=value.dtype)
                terms.setdefault((np.dtype(value.dtype).name, value.ctx), []).append(
                    (value * weights).sum())
        sums = [mx.nd.add_n(*group) for group in terms.values()]
        if not sums:
            return None
        return mx.nd.add_n(*[one.astype('float64').as_in_context(sums[0].ctx) for one in sums])

    def _trained(self) -> List[Tuple[str, NDArray]]:
        """Parameters and inputs that have a gradient, on each of their contexts."""
        named = [(f'input {i}', array) for i, array in enumerate(self.inputs)]
        parameters = {id(parameter): parameter for block in self.blocks
                      for parameter in block.collect_params().values()}
        for parameter in parameters.values():
            if parameter.grad_req != 'null' and parameter._data is not None:
                named += [(f'{parameter.name} on {array.ctx}', array)
                          for array in parameter.list_data()]
        return named

    def _compare(self, what, found, expected, case) -> None:
        _ensure(list(found) == list(expected),
                f'{case}: {what} has structure {list(found)}, eagerly {list(expected)}')
        for name, wanted in expected.items():
            got = found[name]
            label = f'{case}: {what} {name}' if name else f'{case}: {what}'
            _ensure(got.shape == wanted.shape and got.dtype == wanted.dtype,
                    f'{label} is {got.dtype}{got.shape}, eagerly {wanted.dtype}{wanted.shape}')
            _check_close(got, wanted, label, self.rtol)


def _check_close(found: np.ndarray, expected: np.ndarray, label: str,
                 rtol: Optional[float]) -> None:
    if not expected.size:
        return
    if not np.issubdtype(expected.dtype, np.floating):
        _ensure(np.array_equal(found, expected), f'{label} is\n{found}\neagerly\n{expected}')
        return
    finite = np.isfinite(expected)
    _ensure(np.array_equal(finite, np.isfinite(found))
            and np.array_equal(found[~finite], expected[~finite], equal_nan=True),
            f'{label} is finite elsewhere than eagerly:\n{found}\neagerly\n{expected}')
    scale = max(np.abs(expected[finite]).max(initial=0), _SMALLEST_SCALE)
    worst = np.abs(found[finite].astype(np.float64) - expected[finite]).max(initial=0)
    allowed = (_TOLERANCE[expected.dtype.name] if rtol is None else rtol) * float(scale)
    _ensure(worst <= allowed,
            f'{label} differs from eager by up to {worst:.3g} ({allowed:.3g} is allowed)\n'
            f'{found}\neagerly\n{expected}')


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
        return [leaf for key, item in value.items()
                for leaf in _leaves(item, f'{path}[{key!r}]')]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, f'{path}[{i}]')]
    raise AssertionError(f'result{path} is {value!r}, not an array')


def _by_path(results: Any) -> Dict[str, np.ndarray]:
    return {path: _numpy(value) for path, value in _leaves(results)}


def _numpy(array: NDArray) -> np.ndarray:
    return array.asnumpy().copy()


def _ensure(condition: bool, message: str) -> None:
    # Not the assert statement, which python -O leaves out.
    if not condition:
        raise AssertionError(message)
