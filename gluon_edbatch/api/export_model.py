"""Export a whole model as data: its cells, its functions, and what its samples look like."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Union

from greenlet import getcurrent
from mxnet import gluon

from gluon_edbatch_core.bundle.exported_model import ExportedModel
from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
from gluon_edbatch_core.errors import BundleError

from ..mx.blocks import names_of_blocks
from ..record.sites import Site, current_site
from ..subgraph.options import current_options
from . import functional
from .export import CellsContent
from .model_code import HOST, ModelCode
from .scope import DEFAULT_SCHEDULER, batching
from .suspended import Suspension

KIND = 'model'


def export(
    net: gluon.Block,
    samples: Sequence[Any],
    folder: Union[str, Path],
    unpack: bool = False,
    scheduler: Any = DEFAULT_SCHEDULER,
) -> Path:
    """Write a whole model as data, for hosts without MXNet.

    There, ``model = gluon_edbatch_runtime.load(folder)`` loads it, and ``model(samples)`` returns
    results as NumPy arrays. The bundle has the model's cells with their weights, the functions and
    classes of its code that run between them, the learned policy, what its samples look like, and
    the samples with their results. What was written is read again, and run on the samples: the
    results must be those of the model.

    Parameters
    ----------
    net : gluon.Block
        A model for one sample.
    samples : sequence
        Samples that are typical: they have each cell called in each way, each field of the user's
        objects, and each type that a field has. A few hundred are enough.
    folder : str or Path
        Where the bundle is written. A complete new bundle replaces an earlier one.
    unpack : bool, default False
        Whether samples are tuples of arguments.
    scheduler : str or Scheduler
        Which calls run together: see `batching`.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    BundleError
        If something cannot be exported: the message has the line of the user's code, or names the
        cell or field, and says why. Nothing is written then.

    Examples
    --------
    >>> edb.export(net, samples, 'exported')
    """
    arguments = [tuple(sample) if unpack else (sample,) for sample in samples]
    if not arguments or len({len(each) for each in arguments}) != 1:
        raise BundleError('export() needs samples, which have equally many arguments')
    # Sentences that are packed would be of types without the shapes that users see.
    options = current_options().but(buckets=False)
    with batching(scheduler, None, options) as scope:  # on copies, which the code may write to
        with _sites_of_reads() as reads:
            functional.forward([net(*each) for each in deepcopy(arguments)])
    names = names_of_blocks(net)
    with BundleWriter(folder, KIND) as bundle:
        cells = CellsContent(net, scope)
        if 'net' in cells.cells:
            raise BundleError('the model is a single cell: export_cells() writes it')
        code = ModelCode(net, names, cells, bundle, reads)
        model = code.content(arguments)
        blocks = {name: block for block, several in names.items() for name in several}
        read = ExportedModel(model, blocks.__getitem__, code.arrays, HOST)
        given = [[json_of(one, code.fields_of) for one in each] for each in arguments]
        given = [each[0] if len(each) == 1 else each for each in given]
        with batching(scheduler):  # again: from the state that was written
            results = [net(*each) for each in deepcopy(arguments)]
        wanted = list(map(json_of, functional.forward(results)))
        _compare(read, given, wanted)
        content = cells.written(bundle)
        content.update(model, examples=given, results=wanted, waits=_may_wait(net, arguments))
        bundle.content.update(content)
    return Path(folder)


@contextmanager
def _sites_of_reads() -> Iterator[set[Site]]:
    """Note the lines that read values meanwhile."""
    sites: set[Site] = set()
    sample: Any = getcurrent()
    before = getattr(sample, 'contents', None)

    def note(value: Any) -> Any:
        sites.add(current_site())
        return None if before is None else before(value)

    sample.contents = note
    try:
        yield sites
    finally:
        sample.contents = before


def _compare(model: ExportedModel, given: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Run what will be read on the samples; raise if results differ."""
    with batching():
        found = [model.net(*model.read(each, f'samples[{place}]'))
                 for place, each in enumerate(given)]  # fmt: skip
    for place, result in enumerate(functional.forward(found)):
        if not are_close(json_of(result), wanted[place]):
            raise BundleError(
                f'the model cannot be exported: what was written comes to another result for '
                f'samples[{place}]. An object that a sample has twice becomes two, objects of '
                f'classes with the same fields become those of one, and numbers those of Python'
            )


def _may_wait(net: gluon.Block, samples: Sequence[tuple]) -> bool:
    """Return whether samples may take turns where they read values: no other could see it."""
    suspension = Suspension(net, samples)
    suspension._decide()
    return not suspension.why
