"""The test images through the compiled program, in MXNet or exported into another host, compared
with what the network itself makes of them one by one."""

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
    "--host onnx: {missing} is not installed: `pip install './runtime[programs]'` in the checkout. "
    'Or, where there is no MXNet, gluon_edbatch_runtime.load_program(FOLDER) runs what --export '
    'FOLDER has written'
)


class Host(NamedTuple):
    """What runs exported programs.

    Attributes
    ----------
    name : str
        For people.
    load : callable
        Gives the program of a folder.
    give : callable
        Makes what it takes of an image (1, 1, H, W), float32.
    tolerance : float
        How far its numbers may be from eager Gluon's, of these or of 1.
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
    """One of `HOSTS`; MXNet without a name.

    Raises
    ------
    OptionError
        If it is not installed; the message says what to install.
    """
    return HOSTS[name or 'mxnet']()


def run_compiled(task: Task, net: DynamicNetwork, options: argparse.Namespace) -> Iterator[str]:
    """Lines that tell what became of the test images.

    Parameters
    ----------
    task : Task
        Has the test images, and measures.
    net : DynamicNetwork
        Trained or not.
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
        program.export(folder, onnx)
    except (edb.BundleError, OSError) as error:
        raise OptionError(f'--export {folder}: {error}') from None


def _exported(program: edb.Program, host: Host, options: argparse.Namespace) -> Any:
    """The program as the host has it: of the folder, or of one that is there for this only."""
    with tempfile.TemporaryDirectory() as folder, options.ctx:
        path = Path(options.export or Path(folder) / 'bundle')
        if not options.export:
            _export(program, path, onnx=options.host == 'onnx')
        return host.load(path)


def _results(run: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Of all parts: lists of images for a program, or images for a network."""
    return [
        _settled(each)
        for part in parts
        for each in (run(part) if isinstance(part, list) else [run(part)])
    ]


def _seconds(run: Callable[[Any], Any], parts: Sequence[Any]) -> float:
    """That it takes once more: what is compiled at first is there."""
    begin = time.perf_counter()
    _results(run, parts)
    return time.perf_counter() - begin


def _settled(result: Any) -> Any:
    """A result of which all arrays are computed."""
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
        Others, of which a number is farther away than it may be.
    most : float
        How far numbers are apart, of these or of 1, in all samples that took the same path.
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
    """Of the results of several samples."""
    distances = [_distance(one, other) for one, other in zip(found, expected)]
    near = [each for each in distances if each < np.inf]
    return Likeness(
        len(expected),
        [number for number, each in enumerate(distances) if each == np.inf],
        [number for number, each in enumerate(distances) if tolerance < each < np.inf],
        max(near, default=0.0),
    )


def _distance(found: Any, expected: Any) -> float:
    """Infinite where something that is decided differs."""
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
