"""A folder that is served: ``model.py`` says what, all else in it is the model's own."""

from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union

from ..errors import FolderError


class Served(NamedTuple):
    """What ``load(folder)`` in a folder's ``model.py`` returns.

    Attributes
    ----------
    predict : callable or Program
        See `Engine`.
    request : type
        What pydantic checks the JSON of one sample against, such as a subclass of its `BaseModel`.
    read : callable
        The sample of a request that was checked; raises ValueError if there is something wrong that
        types do not tell.
    write : callable
        What is answered, as JSON has it, of what `predict` gave.
    warm_up : sequence
        Requests, as JSON has them, like those to come.
    options : dict
        Of `Engine`.
    """

    predict: Any
    request: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    warm_up: Sequence[Any] = ()
    options: dict[str, Any] = {}  # noqa: RUF012


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
    try:
        spec: Any = spec_from_file_location(f'edb_served_{abs(hash(str(path)))}', path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        served = module.load(folder)
    except Exception as error:
        first_line = (str(error).splitlines() or [''])[0]
        raise FolderError(f'{path}: does not load: {type(error).__name__}: {first_line}') from error
    if not isinstance(served, Served):
        raise FolderError(f'{path}: load() is to return gluon_edbatch.serving.Served')
    return served
