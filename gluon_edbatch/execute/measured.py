"""What was measured to be faster, to be kept in a file: runs with the same one decide the same."""

import json
import os
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple, Union

from ..brief import brief
from ..errors import EdbError
from . import choice, executable, whole_scopes

_VERSION = 1


def save_measured(path: Union[str, 'os.PathLike[str]']) -> None:
    """Write what was measured so far of calls that run at once or in batches.

    Parameters
    ----------
    path : str or path-like
        A JSON file.

    Examples
    --------
    >>> edb.save_measured('measured.json')    # after some minibatches, in one process
    >>> edb.load_measured('measured.json')    # at the beginning of each other
    """
    Path(path).write_text(
        json.dumps({'version': _VERSION, 'at_once': dict(sorted(_decided()))}, indent=1) + '\n',
        encoding='utf-8',
    )


def load_measured(path: Union[str, 'os.PathLike[str]', None]) -> None:
    """From now on decide as a file says, and measure nothing: what is not in it is recorded, and
    runs in batches. So values are rounded alike in each process that does the same.

    Parameters
    ----------
    path : str or path-like, or None
        What `save_measured` wrote; None to measure again. What was measured is forgotten.

    Raises
    ------
    EdbError
        If the file is none of those.
    """
    known: Optional[Dict[str, bool]] = None if path is None else _read(Path(path))
    for of_type in executable.all_known().values():
        of_type.trials.clear()
    whole_scopes.forget()
    choice.settle(known)


def _read(path: Path) -> Dict[str, bool]:
    try:
        found = json.loads(path.read_text(encoding='utf-8'))
        known, version = found['at_once'], found['version']
        if version != _VERSION or not all([value in (True, False) for value in known.values()]):
            raise ValueError(f'version {brief(version)}')
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise EdbError(f'{path} is not what save_measured() writes: {error}') from error
    return known


def _decided() -> Iterator[Tuple[str, bool]]:
    for node_type, of_type in executable.all_known().items():
        for size, trial in of_type.trials.items():
            if trial.decided:
                yield choice.name_of(node_type, size), trial.faster_at_once
    for name, trial in whole_scopes.all_trials():
        if trial.decided:
            yield name, trial.faster_at_once
