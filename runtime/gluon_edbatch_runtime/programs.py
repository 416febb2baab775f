"""Programs that ``gluon_edbatch`` compiled and exported, run by ONNX Runtime and NumPy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np

from .branching.encoded import decoded_blocks, decoded_network
from .branching.graph import ProgramGraph, RunNetwork
from .branching.program import BranchingProgram
from .branching.structure import decoded
from .bundle.manifest import Bundle, read_bundle
from .errors import BundleError

KIND = 'program'
_WITHOUT = 'this bundle has no networks in the format of ONNX: export it with onnx=True'


def load_program(folder: Union[str, Path], threads: int = 1) -> BranchingProgram:
    """Load a program that ``program.export(folder, onnx=True)`` wrote.

    Parameters
    ----------
    folder : str or Path
    threads : int, default 1
        That ONNX Runtime uses within an operator.

    Returns
    -------
    BranchingProgram
        Called with a list of samples, which are NumPy arrays or tuples of arguments, it gives the
        list of their results.

    Raises
    ------
    BundleError
        If something is missing, truncated, altered, of another kind, or of a newer version.
    ImportError
        If ``onnxruntime`` is not installed.
    """
    bundle = read_bundle(folder, KIND)
    content = bundle.content
    networks = [decoded_network(each, None) for each in content['networks']]
    constants = list(map(bundle.array, content['constants']))
    parameters = len(content['parameters'])
    blocks = decoded_blocks(content['blocks'], networks, parameters, len(constants))
    graph = ProgramGraph(blocks, networks, [], constants, decoded(content['arguments']))
    host = OnnxHost(graph, _models(bundle), threads)
    return BranchingProgram(graph, host, int(content['max_steps']))


def _models(bundle: Bundle) -> dict[tuple[int, tuple[int, ...]], bytes]:
    """By network and parameters."""
    found = {}
    for entry in bundle.content['onnx']:
        data = bundle.files.get(entry['file'])
        if data is None:
            raise BundleError(f'{bundle.folder}: the manifest has no file {entry["file"]!r}')
        found[int(entry['network']), tuple(entry['parameters'])] = data
    if not found:
        raise BundleError(f'{bundle.folder}: {_WITHOUT}')
    return found


class OnnxHost:
    """Runs networks by ONNX Runtime; arrays are NumPy's.

    Parameters
    ----------
    graph : ProgramGraph
    models : dict of (int, tuple of int) to bytes
        In the format of ONNX, by network and parameters.
    threads : int

    Attributes
    ----------
    arrays : type
        Of samples and results.
    """

    arrays = np.ndarray

    def __init__(
        self, graph: ProgramGraph, models: dict[tuple[int, tuple[int, ...]], bytes], threads: int
    ):
        self._graph, self._models = graph, models
        self._sessions: dict[tuple[int, tuple[int, ...]], tuple[Any, list[tuple[str, int]]]] = {}
        self._options = _options(threads)

    def put(self, array: np.ndarray) -> np.ndarray:
        """An array of a sample's."""
        return array

    def run(self, run: RunNetwork, inputs: list[np.ndarray], samples: int) -> Sequence[np.ndarray]:
        """Results of a network."""
        network = self._graph.networks[run.network]
        if samples == 1 or network.batched:
            return self._call(run, inputs)
        each = [
            self._call(
                run,
                [
                    array[sample * spec.shape[0] : (sample + 1) * spec.shape[0]]
                    for array, spec in zip(inputs, network.inputs)
                ],
            )
            for sample in range(samples)
        ]
        return [np.concatenate(arrays) for arrays in zip(*each)]

    def _call(self, run: RunNetwork, inputs: list[np.ndarray]) -> Sequence[np.ndarray]:
        key = run.network, run.parameters
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = self._session(key)
        session, names = found
        return session.run(None, {name: inputs[place] for name, place in names})

    def _session(self, key: tuple[int, tuple[int, ...]]) -> tuple[Any, list[tuple[str, int]]]:
        from onnxruntime import InferenceSession

        if key not in self._models:
            raise BundleError(f'network {key[0]} is not in the bundle with parameters {key[1]}')
        session = InferenceSession(
            self._models[key], self._options, providers=['CPUExecutionProvider']
        )
        names = [each.name for each in session.get_inputs()]
        return session, [(name, int(name.removeprefix('edb_input'))) for name in names]

    def take(self, array: np.ndarray, samples: np.ndarray, rows: int) -> np.ndarray:
        """Rows of some samples."""
        if rows != 1:
            samples = (samples[:, None] * rows + np.arange(rows)).ravel()
        return array[samples]

    def concat(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Their rows one after the other."""
        return np.concatenate(arrays)

    def split(self, array: np.ndarray, rows: int, samples: int) -> list[np.ndarray]:
        """An array for each sample."""
        return [array[sample * rows : (sample + 1) * rows] for sample in range(samples)]

    def read(self, array: np.ndarray) -> np.ndarray:
        """The elements, one for each sample."""
        return array.reshape(-1)

    def give(self, numbers: np.ndarray, dtype: str) -> np.ndarray:
        """An array of numbers."""
        return numbers.astype(dtype)

    def fill(self, constant: int, samples: int) -> np.ndarray:
        """A constant for each sample."""
        array = self._graph.constants[constant]
        return np.tile(array, (samples,) + (1,) * (array.ndim - 1))


def _options(threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ImportError(
            'programs are run by ONNX Runtime, which is not installed: pip install onnxruntime'
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors: it warns of initializers that a network does not need
    return options
