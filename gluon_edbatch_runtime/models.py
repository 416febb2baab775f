"""Run whole models that ``gluon_edbatch.export`` wrote: their cells, functions and samples."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

from gluon_edbatch_core.bundle.exported_model import ExportedModel, modules_of
from gluon_edbatch_core.bundle.manifest import read_bundle
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of_result
from gluon_edbatch_core.bundle.suspending import finished
from gluon_edbatch_core.errors import BundleError, EdbError, RecordError
from gluon_edbatch_core.schedule import Scheduler

from . import nd, scope
from .cells import WHILE_READ, Cells, loaded_cells
from .scope import batching, forward

KIND = 'model'
CHECKED = 8  # examples that run where a model is loaded


class Model:
    """A whole model, which runs on lists of samples.

    Attributes
    ----------
    cells : Cells
        The model's cells, by their names.
    examples : list
        The samples that the model was exported with, as JSON.
    evaluations : int
        How many times the last list of samples was evaluated: more than once if values are read.
    """

    def __init__(
        self,
        folder: Path,
        content: dict[str, Any],
        cells: Cells,
        make: Callable[[], ExportedModel],
    ):
        self._folder, self._content, self._make, self._model = folder, content, make, make()
        self.cells, self.examples, self.evaluations = cells, content['examples'], 0

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
        with batching(scheduler) as scope:
            results = forward(self._run(given))
        self.evaluations = len(scope.schedules())
        return results

    def _run(self, samples: Sequence[tuple]) -> list[Any]:
        """Return the results of all samples. Those that read values wait for each other."""
        results = [finished(self._model.net(*each), self._model.generators) for each in samples]
        waiting: dict[int, Any] = dict.fromkeys(range(len(results)))
        while waiting:
            for place, value in list(waiting.items()):
                try:
                    waiting[place] = results[place].send(value)
                except StopIteration as stopped:
                    results[place] = stopped.value
                    del waiting[place]
            waiting = dict(zip(waiting, forward(list(waiting.values()))))
        return results

    def check(self, most: Optional[int] = None) -> int:
        """Run the examples of the bundle, or the first of them, as if it had just been loaded, and
        return how many. Raise BundleError if a result differs from that of MXNet."""
        few = self.examples[:most]
        try:
            found = Model(self._folder, self._content, self.cells, self._make)(few)
        except Exception as error:
            raise BundleError(
                f'{self._folder}: the examples of the export cannot be run here: '
                f'{type(error).__name__}: {error}'
            ) from error
        for place, (mine, wanted) in enumerate(zip(found, self._content['results'])):
            if not are_close(json_of_result(mine), wanted):
                raise BundleError(
                    f'{self._folder}: examples[{place}] comes to another result than with MXNet'
                )
        return len(few)


def load(folder: Union[str, Path], most_steps: Optional[int] = None, check: bool = True) -> Model:
    """Load a whole model that ``gluon_edbatch.export`` wrote.

    Everything is checked first. The bundle is data: its functions can compute, and reach neither
    files nor the interpreter.

    Parameters
    ----------
    folder : str or Path
    most_steps : int, optional
        How many steps all loops may have for one list of samples; by default 10 million.
    check : bool, default True
        Whether the first examples of the bundle are run, and compared with MXNet's results.

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

        def make() -> ExportedModel:
            own = [array.copy() for array in arrays]  # the code may write to them
            modules = modules_of(scope, nd)
            return ExportedModel(bundle.content, by_name.__getitem__, own, modules, most_steps)

        loaded = Model(bundle.folder, bundle.content, cells, make)
    except (RecordError, *WHILE_READ) as error:
        if isinstance(error, EdbError):
            raise
        raise BundleError(
            f'{bundle.folder} has a manifest that does not make sense: '
            f'{type(error).__name__}: {error}'
        ) from error
    if check:
        loaded.check(CHECKED)
    return loaded
