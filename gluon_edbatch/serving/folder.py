"""A folder that is served: ``model.py`` says what, all else in it is the model's own."""

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union

from ..errors import FolderError

Tensors = Mapping[str, tuple[str, Sequence[int]]]


class Served(NamedTuple):
    """What ``load(folder)`` in a folder's ``model.py`` returns.

    Attributes
    ----------
    predict : callable or Program
        See `Engine`.
    request : type or None
        What pydantic checks the JSON of one sample against, such as a subclass of its `BaseModel`.
        None where samples are arrays (`inputs`).
    read : callable
        Makes a sample of a checked request, or of a dict of arrays. Raises ValueError if there is
        something wrong that types do not tell.
    write : callable
        Makes the answer of what `predict` returned: what JSON has, or a dict of arrays by the names
        of `outputs`.
    warm_up : sequence
        Requests, as JSON has them, like those to come; dicts of arrays where samples are arrays.
    options : dict
        Of `Engine`.
    inputs, outputs : dict of str to tuple
        Datatype of the protocol (``FP32``, ``INT64``, …) and shape of each array of a sample, and
        of an answer; -1 is any size. Empty where these are JSON.
    """

    predict: Any
    request: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    warm_up: Sequence[Any] = ()
    options: dict[str, Any] = {}  # noqa: RUF012
    inputs: Tensors = {}  # noqa: RUF012
    outputs: Tensors = {}  # noqa: RUF012


def load_folder(folder: Union[str, Path]) -> Served:
    """What a folder serves. Its ``model.py`` is executed: serve folders that you trust.

    Raises
    ------
    FolderError
        If something is missing or damaged; the message is one sentence.
    """
    folder = Path(folder)
    path = folder / 'model.py'
    if not path.is_file():
        raise FolderError(f'{folder}: is no folder of a model, as it has no model.py')
    with whose_fault(folder, 'does not load'):
        spec: Any = spec_from_file_location(f'edb_served_{abs(hash(str(path)))}', path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        served = module.load(folder)
    if not isinstance(served, Served):
        raise FolderError(f'{path}: load() is to return gluon_edbatch.serving.Served')
    return served


def name_of(folder: Path) -> str:
    """The name that ``model-settings.json`` gives the model, or the folder's if there is none.

    Raises
    ------
    FolderError
        If there is no such folder, or that file is damaged.
    """
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
    """Tell an error of the user's code in one sentence, with the line of their file.

    Raises
    ------
    FolderError
        In the place of what was raised, `SystemExit` included.
    """
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
        text = (str(error).splitlines() or [''])[0]
        raise FolderError(f'{path}{where}: {what}: {type(error).__name__}: {text}') from error
