"""Run programs that ``gluon_edbatch`` compiled and exported, with ONNX Runtime and NumPy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np

from gluon_edbatch_core.branching.program_graph import ProgramGraph, RunNetwork
from gluon_edbatch_core.branching.program_host import Host
from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.branching.pytree import deserialised
from gluon_edbatch_core.branching.serialisation import deserialised_blocks, deserialised_network
from gluon_edbatch_core.bundle.manifest import Bundle, read_bundle
from gluon_edbatch_core.errors import BundleError

KIND = 'program'
_WITHOUT = 'this bundle has no networks in the format of ONNX: export it with onnx=True'


def load_program(folder: Union[str, Path], threads: int = 1) -> ControlFlowProgram:
    """Load a program that ``gluon_edbatch.export(program, folder, onnx=True)`` wrote.

    Parameters
    ----------
    folder : str or Path
    threads : int, default 1
        Number of threads that ONNX Runtime uses within an operator.

    Returns
    -------
    ControlFlowProgram
        Call it with a list of samples, NumPy arrays or tuples of arguments, to get the list of
        their results.

    Raises
    ------
    BundleError
        If something is missing, truncated, altered, of another kind, or of a newer version.
    ImportError
        If ``onnxruntime`` is not installed.
    """
    bundle = read_bundle(folder, KIND)
    content = bundle.content
    networks = [deserialised_network(each, None) for each in content['networks']]
    constants = list(map(bundle.array, content['constants']))
    parameters = len(content['parameters'])
    blocks = deserialised_blocks(content['blocks'], networks, parameters, len(constants))
    graph = ProgramGraph(blocks, networks, [], constants, deserialised(content['arguments']))
    host = OnnxHost(graph, _models(bundle), threads)
    return ControlFlowProgram(graph, host, int(content['max_steps']))


def _models(bundle: Bundle) -> dict[tuple[int, tuple[int, ...]], bytes]:
    """Return the ONNX models by network and parameters."""
    found = {}
    for entry in bundle.content['onnx']:
        data = bundle.files.get(entry['file'])
        if data is None:
            raise BundleError(f'{bundle.folder}: the manifest has no file {entry["file"]!r}')
        found[int(entry['network']), tuple(entry['parameters'])] = data
    if not found:
        raise BundleError(f'{bundle.folder}: {_WITHOUT}')
    return found


class OnnxHost(Host):
    """Run networks by ONNX Runtime, from models by network and parameters; arrays are NumPy's."""

    def __init__(
        self, graph: ProgramGraph, models: dict[tuple[int, tuple[int, ...]], bytes], threads: int
    ):
        super().__init__(graph)
        self._models = models
        self._sessions: dict[tuple[int, tuple[int, ...]], tuple[Any, list[tuple[str, int]]]] = {}
        self._options = _options(threads)

    def _call(self, run: RunNetwork, inputs: list[np.ndarray], alone: bool) -> Sequence[np.ndarray]:
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
