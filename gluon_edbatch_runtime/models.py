"""Run whole models that ``gluon_edbatch.export`` wrote: their cells, functions and samples."""

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Callable, Optional, Union

from gluon_edbatch_core.bundle.exported_model import ExportedModel, modules_of
from gluon_edbatch_core.bundle.json_schema import json_schema
from gluon_edbatch_core.bundle.manifest import read_bundle
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
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
        given = [self.read(sample, f'samples[{place}]') for place, sample in enumerate(samples)]
        self._model.steps.again()
        run = RunningSamples(self._model, scheduler)
        error: Optional[BaseException] = None
        try:
            for place, each in enumerate(given):
                run.begin(place, each)
            results: dict[int, Any] = {}
            while len(results) < len(given):
                ended, answers = run.evaluate()
                results.update(ended)
                for place, answer in answers.items():
                    run.advance(place, answer)
        except BaseException as raised:
            error = raised
            raise
        finally:
            run.close(error)
        self.evaluations = len(run.scope.schedules())
        return [results[place] for place in range(len(given))]

    def read(self, sample: Any, name: str = 'sample') -> tuple:
        """Return the arguments of the model for a sample. Raises RecordError, which names the
        field, if the sample is not like those that were exported."""
        return self._model.read(sample, name)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a sample."""
        return json_schema(self._content)

    def reset(self) -> None:
        """Set what the code keeps on the model to what the export left."""
        self._model = self._make()

    def running(self) -> 'RunningSamples':
        """Enter a scope, and return the samples that run together in it: none yet."""
        return RunningSamples(self._model)

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
            if not are_close(json_of(mine), wanted):
                raise BundleError(
                    f'{self._folder}: examples[{place}] comes to another result than with MXNet'
                )
        return len(few)


class RunningSamples:
    """Samples that record into one scope, each under a key. Those that read values wait for each
    other."""

    def __init__(self, model: ExportedModel, scheduler: Union[str, Scheduler, None] = None):
        self._model, self.steps = model, model.steps
        self._waiting: dict[Any, tuple[Generator[Any, Any, Any], Any]] = {}
        self._ended: dict[Any, Any] = {}
        self.scope = batching(scheduler)
        self.scope.__enter__()

    def start(self, key: Any, sample: Any) -> None:
        """Read a sample, and run it until it waits for a value or ends."""
        self.begin(key, self._model.read(sample, 'sample'))

    def begin(self, key: Any, arguments: tuple) -> None:
        """Run a sample of these arguments until it waits for a value or ends."""
        steps = finished(self._model.net(*arguments), self._model.generators)
        self._waiting[key] = steps, None
        self.advance(key, None)

    def advance(self, key: Any, answer: Any) -> None:
        """Run a sample with what it waited for."""
        steps, _ = self._waiting.pop(key)
        try:
            self._waiting[key] = steps, steps.send(answer)
        except StopIteration as stopped:
            self._ended[key] = stopped.value

    def evaluate(self) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return the results of samples that ended, and what the others wait for."""
        ended, self._ended = self._ended, {}
        waited = [value for _, value in self._waiting.values()]
        results, answers = forward([list(ended.values()), waited])
        return dict(zip(ended, results)), dict(zip(self._waiting, answers))

    def drop(self, key: Any) -> None:
        """Forget a sample."""
        self._waiting.pop(key, None)
        self._ended.pop(key, None)

    def close(self, error: Optional[BaseException] = None) -> None:
        """Leave the scope."""
        self._waiting, self._ended = {}, {}
        self.scope.__exit__(error and type(error), error, None)


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
