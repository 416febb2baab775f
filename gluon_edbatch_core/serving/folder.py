"""Load a folder to serve: an exported model, or one whose ``model.py`` describes the model."""

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union

from ..bundle.manifest import NAME
from ..errors import FolderError

Tensors = Mapping[str, tuple[str, Sequence[int]]]


class Served(NamedTuple):
    """Describe a model to serve: ``load(folder)`` in a folder's ``model.py`` returns this.

    Attributes
    ----------
    predict : callable or Program
        Computes the result of one sample; see `Engine`.
    request : type, dict or None
        The type that pydantic checks the JSON of one sample against, such as a `BaseModel`. Or the
        JSON Schema of a sample, which clients are told, and `read` checks. None if samples are
        arrays (`inputs`).
    read : callable
        Makes a sample from a checked request, or from a dict of arrays. It raises ValueError for
        errors that types cannot express.
    write : callable
        Makes the answer from what `predict` returns: a JSON value, or a dict of arrays by the names
        in `outputs`.
    warm_up : sequence
        Requests like those to come: JSON values, or dicts of arrays if samples are arrays.
    options : dict
        Further arguments of `Engine`.
    engine : type, optional
        The class of the engine, which gets `predict`, `warm_up` and `options`. By default
        ``gluon_edbatch.serving.Engine``.
    inputs, outputs : dict of str to tuple
        The protocol's datatype (``FP32``, ``INT64``, …) and the shape of each array of a sample,
        and of an answer; -1 is any size. Empty if these are JSON.
    """

    predict: Any
    request: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    warm_up: Sequence[Any] = ()
    options: dict[str, Any] = {}  # noqa: RUF012
    inputs: Tensors = {}  # noqa: RUF012
    outputs: Tensors = {}  # noqa: RUF012
    engine: Any = None


def load_folder(folder: Union[str, Path]) -> Served:
    """Execute a folder's ``model.py`` and return its `Served`: load only folders that you trust.
    The folder of an exported model is data, and is not executed. Raises FolderError, with one
    sentence, if something is missing or damaged."""
    folder = Path(folder)
    path = folder / 'model.py'
    if not path.is_file() and not (folder / NAME).is_file():
        raise FolderError(
            f'{folder}: is no folder of a model, as it has no model.py, and none of edb.export'
        )
    with whose_fault(folder, 'does not load'):
        if not path.is_file():  # another package runs it, which this one may not need
            found: Served = import_module('gluon_edbatch_runtime.serving').load_served(folder)
            return found
        spec: Any = spec_from_file_location(f'edb_served_{abs(hash(str(path)))}', path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        served = module.load(folder)
    if not isinstance(served, Served):
        raise FolderError(f'{path}: load() is to return gluon_edbatch.serving.Served')
    return served


def name_of(folder: Path) -> str:
    """Return the model's name from ``model-settings.json``, or else the folder's. Raises
    FolderError if the folder does not exist, or the file is damaged."""
    settings = folder / 'model-settings.json'
    if not folder.is_dir():
        raise FolderError(f'{folder}: there is no such folder')
    try:
        return str(json.loads(settings.read_text(encoding='utf-8'))['name'])
    except FileNotFoundError:
        return folder.resolve().name
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f'{settings}: is damaged: {error!r}') from None


@contextmanager
def whose_fault(folder: Path, what: str) -> Iterator[None]:
    """Replace an error of the user's code, `SystemExit` included, by a FolderError: one sentence,
    which names the line in their file."""
    path = folder / 'model.py'
    try:
        yield
    except FolderError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
        if isinstance(error, SyntaxError) and error.lineno:
            lines = [error.lineno]
        where = f':{lines[-1]}' if lines else ''
        text = ' '.join(' '.join(str(error).splitlines()[:3]).split())[:300]
        raise FolderError(f'{path}{where}: {what}: {type(error).__name__}: {text}') from error
