"""Run the test images through the compiled program, in MXNet or exported to another host, and
compare with the network itself."""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

import gluon_edbatch as edb
from example.common.errors import OptionError
from example.common.task import Task

from .data import images_of
from .network import DynamicNetwork

__all__ = ['HOSTS', 'Host', 'Likeness', 'host_of', 'likeness', 'run_compiled']

_NO_RUNTIME = (
    "--host onnx: {missing} is not installed: `pip install '.[programs]'` in the checkout. "
    'Or, where there is no MXNet, gluon_edbatch_runtime.load_program(FOLDER) runs what --export '
    'FOLDER has written'
)


class Host(NamedTuple):
    """A host that runs exported programs.

    Attributes
    ----------
    name : str
        For people.
    load : callable
        Loads the program of a folder.
    give : callable
        Converts an image (1, 1, H, W), float32, to the host's arrays.
    tolerance : float
        Tolerance for its numbers against eager Gluon's, relative to these or to 1.
    """

    name: str
    load: Callable[[Path], Any]
    give: Callable[[np.ndarray], Any]
    tolerance: float


def _mxnet() -> Host:
    return Host('MXNet', edb.load_program, mx.nd.array, 1e-5)


def _onnx() -> Host:
    try:
        import onnxruntime

        import gluon_edbatch_runtime as runtime
    except ImportError as error:
        raise OptionError(_NO_RUNTIME.format(missing=error.name)) from None
    return Host(f'ONNX Runtime {onnxruntime.__version__}', runtime.load_program, np.asarray, 1e-4)


HOSTS: dict[str, Callable[[], Host]] = {'mxnet': _mxnet, 'onnx': _onnx}


def host_of(name: Optional[str]) -> Host:
    """Return one of `HOSTS`; MXNet without a name.

    Raises
    ------
    OptionError
        If the host is not installed; the message says what to install.
    """
    return HOSTS[name or 'mxnet']()


def run_compiled(task: Task, net: DynamicNetwork, options: argparse.Namespace) -> Iterator[str]:
    """Yield lines on the results for the test images.

    Parameters
    ----------
    task : Task
        Task with the test images, which measures results.
    net : DynamicNetwork
        The network, trained or not.
    options : argparse.Namespace
        Of the command line: ``ctx``, ``eval_batch_size``, ``export`` and ``host``.

    Raises
    ------
    OptionError
        If the program cannot be exported, or its host is not installed.
    """
    samples, host = task.samples['test'], host_of(options.host)
    images = list(images_of(samples)[:, None])
    eager_images = [mx.nd.array(image, ctx=options.ctx) for image in images]
    program = edb.compile_program(net, eager_images[0])
    if options.export:
        _export(program, Path(options.export), onnx=True)
        yield f'exported: {options.export}'
    if options.host:
        program = _exported(program, host, options)
    with options.ctx:
        given = list(map(host.give, images))
    size = min(options.eval_batch_size, len(given))
    parts = [given[start : start + size] for start in range(0, len(given), size)]
    found, report = _results(program, parts), str(program.report())
    expected = _results(net, eager_images)
    rows = np.array([net.judge(each, one.target) for each, one in zip(found, samples)], float)
    yield f'compiled, in {host.name}, {size} images together: {task.measure(rows, samples)}'
    yield str(likeness(found, expected, host.tolerance))
    yield report
    speeds = [len(samples) / _seconds(*each) for each in ((program, parts), (net, eager_images))]
    yield '{:.1f} images/s; eager, one by one: {:.1f}'.format(*speeds)


def _export(program: edb.Program, folder: Path, onnx: bool) -> None:
    try:
        edb.export(program, folder, onnx=onnx)
    except (edb.BundleError, OSError) as error:
        raise OptionError(f'--export {folder}: {error}') from None


def _exported(program: edb.Program, host: Host, options: argparse.Namespace) -> Any:
    """Return the program in the host's form: of the folder, or of a temporary one."""
    with tempfile.TemporaryDirectory() as folder, options.ctx:
        path = Path(options.export or Path(folder) / 'bundle')
        if not options.export:
            _export(program, path, onnx=options.host == 'onnx')
        return host.load(path)


def _results(run: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Return results of all parts: lists of images for a program, or images for a network."""
    return [
        _settled(each)
        for part in parts
        for each in (run(part) if isinstance(part, list) else [run(part)])
    ]


def _seconds(run: Callable[[Any], Any], parts: Sequence[Any]) -> float:
    """Return the seconds of another run, when everything is compiled."""
    begin = time.perf_counter()
    _results(run, parts)
    return time.perf_counter() - begin


def _settled(result: Any) -> Any:
    """Return a result whose arrays are all computed."""
    if isinstance(result, (list, tuple)):
        return type(result)(map(_settled, result))
    if isinstance(result, NDArray):
        result.wait_to_read()
    return mx.nd.array(result, dtype=result.dtype) if isinstance(result, np.ndarray) else result


class Likeness(NamedTuple):
    """How far results are from those of eager Gluon.

    Attributes
    ----------
    samples : int
    elsewhere : list of int
        Samples that took another path, or said another word.
    farther : list of int
        Other samples with a number beyond the tolerance.
    most : float
        Largest difference of numbers, relative to these or to 1, in samples that took the same
        path.
    """

    samples: int
    elsewhere: list[int]
    farther: list[int]
    most: float

    def __str__(self) -> str:
        bad = len(self.elsewhere) + len(self.farther)
        lines = [
            f'{self.samples - bad} of {self.samples} results are those of eager Gluon: numbers at '
            f'most {self.most:.1e} apart'
        ]
        for what, some in (('another path', self.elsewhere), ('other numbers', self.farther)):
            if some:
                numbers = ', '.join(map(str, some[:10])) + ', ...' * (len(some) > 10)
                lines.append(f'{what}: images {numbers}')
        return '\n'.join(lines)


def likeness(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> Likeness:
    """Compare the results of several samples."""
    distances = [_distance(one, other) for one, other in zip(found, expected)]
    near = [each for each in distances if each < np.inf]
    return Likeness(
        len(expected),
        [number for number, each in enumerate(distances) if each == np.inf],
        [number for number, each in enumerate(distances) if tolerance < each < np.inf],
        max(near, default=0.0),
    )


def _distance(found: Any, expected: Any) -> float:
    """Return the distance of two results; infinite where a decision differs."""
    if isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return float(np.inf)
        return max(map(_distance, found, expected), default=0.0)
    if not isinstance(expected, NDArray):
        return 0.0 if found == expected else float(np.inf)
    one, other = found.asnumpy(), expected.asnumpy()
    if one.shape != other.shape:
        return float(np.inf)
    return float(np.max(np.abs(one - other) / np.maximum(np.abs(other), 1), initial=0.0))
