"""Run whole models that ``gluon_edbatch.export`` wrote: their cells, functions and samples."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from . import nd, scope
from .branching.pytree import flatten
from .bundle.cell_program import NotInNumPy
from .bundle.exported_model import ExportedModel, modules_of
from .bundle.manifest import read_bundle
from .cells import Cells, loaded_cells
from .errors import BundleError, EdbError, RecordError
from .schedule import Scheduler
from .scope import batching, forward

KIND = 'model'
_WHILE_READ = KeyError, TypeError, IndexError, ValueError, AttributeError, NotInNumPy
_CLOSE = {'rtol': 1e-4, 'atol': 1e-5}


class Model:
    """A whole model, which runs on lists of samples.

    Attributes
    ----------
    cells : Cells
        The model's cells, by their names.
    examples : list
        The samples that the model was exported with, as JSON.
    """

    def __init__(self, folder: Path, content: dict[str, Any], cells: Cells, model: ExportedModel):
        self._folder, self._content, self._model = folder, content, model
        self.cells, self.examples = cells, content['examples']

    def __repr__(self) -> str:
        return f'<Model {self._folder}>'

    def __call__(
        self, samples: Iterable[Any], scheduler: Union[str, Scheduler, None] = None
    ) -> list[Any]:
        """Run the model on samples, in batches.

        Parameters
        ----------
        samples : iterable
            Each in JSON, or an object with the fields of the user's class. A model of several
            arguments takes a list of them for each sample.
        scheduler : str or Scheduler, optional
            Which calls run together; by default the bundle's policy.

        Returns
        -------
        list
            What the model returns for each sample, with NumPy arrays.

        Raises
        ------
        RecordError
            If a sample is not like those that were exported: the message names the field.
        """
        given = [
            self._model.read(sample, f'samples[{place}]') for place, sample in enumerate(samples)
        ]
        self._model.steps.again()
        with batching(scheduler):
            results = [self._model.net(*each) for each in given]
            return forward(results)

    def check(self) -> int:
        """Run the examples of the bundle, and return how many there are. Raise BundleError if a
        result differs from that of MXNet."""
        for place, (mine, wanted) in enumerate(zip(self(self.examples), self._content['results'])):
            leaves: list[Any] = []
            flatten(mine, np.ndarray, leaves)
            others: list[Any] = []
            _arrays_of(mine, wanted, others)
            for one, other in zip(leaves, others):
                if one.shape != other.shape or not np.allclose(
                    one, other, equal_nan=True, **_CLOSE
                ):
                    raise BundleError(
                        f'{self._folder}: examples[{place}] comes to another result than with '
                        f'MXNet, up to {np.abs(one - other).max():.2g} apart'
                    )
        return len(self.examples)


def _arrays_of(like: Any, data: Any, found: list[np.ndarray]) -> None:
    """Append the arrays of results in JSON, which are nested as `like`."""
    if isinstance(like, (list, tuple)):
        for one, other in zip(like, data):
            _arrays_of(one, other, found)
    elif isinstance(like, np.ndarray):
        found.append(np.array(data, like.dtype))


def load(folder: Union[str, Path], most_steps: Optional[int] = None) -> Model:
    """Load a whole model that ``gluon_edbatch.export`` wrote.

    Everything is checked first. The bundle is data: its functions can compute, and reach neither
    files nor the interpreter.

    Parameters
    ----------
    folder : str or Path
    most_steps : int, optional
        How many steps all loops may have for one list of samples; by default 10 million.

    Returns
    -------
    Model

    Raises
    ------
    BundleError
        If the folder is not a complete, unchanged bundle of a model that this version can read.
    """
    bundle = read_bundle(folder, KIND)
    try:
        cells, by_name = loaded_cells(bundle)
        arrays = [bundle.array(entry) for entry in bundle.content['arrays']]
        model = ExportedModel(
            bundle.content, by_name.__getitem__, arrays, modules_of(scope, nd), most_steps
        )
        return Model(bundle.folder, bundle.content, cells, model)
    except (RecordError, *_WHILE_READ) as error:
        if isinstance(error, EdbError):
            raise
        raise BundleError(
            f'{bundle.folder} has a manifest that does not make sense: '
            f'{type(error).__name__}: {error}'
        ) from error
