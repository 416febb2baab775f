"""Save checkpoints of a training run: one file, complete or absent.

The file is a zip archive. It has ``meta.json`` (epoch, best figures, options, checksums), present
and best parameters as ``.npy`` files, and the trainer's states as `Trainer.save_states` writes
them. The archive's own checksums do not cover names. It is written under another name, forced to
disk and then renamed, so either the old checkpoint or the new one survives a failure.
"""

import hashlib
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon

__all__ = [
    'Checkpoint',
    'CheckpointError',
    'Place',
    'load',
    'parameter_arrays',
    'restore_trainer',
    'save',
    'set_parameters',
    'trainer_states',
]

FORMAT = 'gluon_edbatch example checkpoint 2'
_WITHOUT_CHECKSUMS = 'gluon_edbatch example checkpoint 1'  # is still read


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged, or of another program or model."""


class Place(NamedTuple):
    """How much of an epoch was done at a checkpoint."""

    steps: int  # minibatches that are done
    workers: int  # that divided them
    loss: float  # summed over samples


class Checkpoint(NamedTuple):
    """All that a run needs to continue as if it had not stopped.

    There is no state of a random number generator: each epoch draws from generators seeded with
    ``options['seed']`` and the epoch's number; after a checkpoint within it, with the place, too.
    """

    task: str  # name of the example
    options: dict[str, Any]  # of the command line
    state: dict[str, Any]  # `Task.state`
    history: list[dict[str, float]]  # what was measured in each epoch
    parameters: dict[str, np.ndarray]
    best_epoch: int
    best_parameters: dict[str, np.ndarray]
    trainer: bytes
    place: Optional[Place] = None  # if it was written within an epoch


def save(path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; an older one of this name stays complete until the new one is."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f'{path.name}.part')
    try:
        with part.open('wb') as file:
            _write_archive(file, checkpoint)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        if part.exists():
            part.unlink()
    _sync_directory(path.parent)


def load(path) -> Checkpoint:
    """Read a checkpoint that `save` wrote.

    The trainer's states are a pickle, as MXNet writes them: load only files that you trust.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, or not a checkpoint of this program.
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(path, archive)
    except FileNotFoundError:
        raise CheckpointError(f'{path}: there is no such checkpoint') from None
    except CheckpointError:
        raise
    except Exception as error:  # a damaged archive may ask for a password, or for anything
        raise CheckpointError(f'{path}: not a checkpoint, or damaged ({error})') from error


def parameter_arrays(net: gluon.Block) -> dict[str, np.ndarray]:
    """Return copies of a network's parameters, by their place in it
    (``tree_lstm.embed.weight``)."""
    return {
        name: parameter.data(parameter.list_ctx()[0]).asnumpy()
        for name, parameter in net._collect_params_with_prefix().items()
    }


def set_parameters(net: gluon.Block, arrays: dict[str, np.ndarray]) -> None:
    """Put arrays of `parameter_arrays` into a network of the same build."""
    parameters = net._collect_params_with_prefix()
    if parameters.keys() != arrays.keys():
        odd = sorted(parameters.keys() ^ arrays.keys())
        raise CheckpointError(f'checkpoint and model differ in their parameters: {odd}')
    for name, parameter in parameters.items():
        if parameter.shape != arrays[name].shape:
            raise CheckpointError(
                f'parameter {name} has shape {arrays[name].shape} in the '
                f'checkpoint and {parameter.shape} in the model'
            )
        # An NDArray: into weights that oneDNN has laid out its own way, NumPy's cannot be copied.
        parameter.set_data(mx.nd.array(arrays[name], dtype=arrays[name].dtype))


def trainer_states(trainer: gluon.Trainer) -> bytes:
    """Return what `Trainer.save_states` writes."""
    with tempfile.TemporaryDirectory() as directory:
        name = os.path.join(directory, 'states')
        trainer.save_states(name)
        return Path(name).read_bytes()


def restore_trainer(trainer: gluon.Trainer, states: bytes) -> None:
    """Give a trainer the states of `trainer_states`."""
    with tempfile.TemporaryDirectory() as directory:
        name = os.path.join(directory, 'states')
        Path(name).write_bytes(states)
        trainer.load_states(name)


def _write_archive(file, checkpoint: Checkpoint) -> None:
    fields = checkpoint._asdict()
    arrays = {group: fields.pop(group) for group in ('parameters', 'best_parameters')}
    trainer = fields.pop('trainer')
    checksums: dict[str, str] = {}
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as archive:

        def write(member: str, contents: bytes) -> None:
            checksums[member] = _checksum(contents)
            archive.writestr(member, contents)

        write('trainer', trainer)
        for group, members in arrays.items():
            for name, array in members.items():
                buffer = io.BytesIO()
                np.save(buffer, array, allow_pickle=False)
                write(f'{group}/{name}.npy', buffer.getvalue())
        archive.writestr(
            'meta.json', json.dumps({'format': FORMAT, **fields, 'checksums': checksums})
        )


def _checksum(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


def _read_archive(path: Path, archive: zipfile.ZipFile) -> Checkpoint:
    contents = {member: archive.read(member) for member in archive.namelist()}
    fields = json.loads(contents.pop('meta.json'))
    form = fields.pop('format', None)
    if form not in (FORMAT, _WITHOUT_CHECKSUMS):
        raise CheckpointError(f'{path}: not a checkpoint of this program ("{FORMAT}")')
    if form == FORMAT:
        _compare(path, fields.pop('checksums'), contents)
    arrays: dict[str, dict[str, np.ndarray]] = {'parameters': {}, 'best_parameters': {}}
    for member, array in contents.items():
        group, _, name = member.partition('/')
        if group in arrays:
            arrays[group][name[: -len('.npy')]] = np.load(io.BytesIO(array), allow_pickle=False)
    place = fields.pop('place', None)
    return Checkpoint(
        trainer=contents['trainer'], place=place and Place(*place), **arrays, **fields
    )


def _compare(path: Path, checksums: dict[str, str], contents: dict[str, bytes]) -> None:
    """Raise unless the archive holds what was written, no less and no more."""
    found = {member: _checksum(content) for member, content in contents.items()}
    if found != checksums:
        odd = sorted(member for member, _ in found.items() ^ checksums.items())
        raise CheckpointError(f'{path}: not a checkpoint, or damaged (in {", ".join(odd[:5])})')


def _sync_directory(directory: Path) -> None:
    """Make a rename in a directory survive a power cut, where the system can."""
    if hasattr(os, 'O_DIRECTORY'):
        descriptor = os.open(directory, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
