"""Export models, their cells and compiled programs as data, for hosts without MXNet."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, Union

from greenlet import getcurrent
from mxnet import gluon

from gluon_edbatch_core.bundle.exported_model import ExportedModel
from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.bundle.sample_schema import are_close, json_of
from gluon_edbatch_core.errors import BundleError
from gluon_edbatch_core.short_repr import brief

from ..mx.blocks import names_of_blocks
from ..program.network_program import Program
from ..program.program_bundle import write_program
from ..record.sites import Site, current_site
from ..subgraph.options import current_options
from . import functional
from .export import CellsContent
from .model_code import HOST, ModelCode
from .scope import DEFAULT_SCHEDULER, batching
from .suspended import Suspension


def export(
    net: Union[gluon.Block, Program],
    samples: Union[Sequence[Any], batching, str, Path, None] = None,
    folder: Union[str, Path, None] = None,
    unpack: bool = False,
    scheduler: Any = DEFAULT_SCHEDULER,
    *,
    onnx: bool = False,
    cpp: bool = False,
) -> Path:
    """Write a model, its cells or a compiled program as data, for hosts without MXNet.

    - ``export(net, samples, folder)`` writes a whole model: its cells with their weights, the
      functions and classes of its code that run between them, the learned policy, what its samples
      look like, and the samples with their results. The export reads what it wrote, runs it on the
      samples, and compares the results. ``gluon_edbatch_runtime.load(folder)`` loads the model.
    - ``export(net, scope, folder)`` writes the cells alone: each batch signature that the scope
      recorded, the present weights, and the policy that the scheduler has learned. NumPy runs each
      batch signature first, and its results are compared with MXNet's.
      ``gluon_edbatch_runtime.load_cells(folder)`` loads the cells.
    - ``export(program, folder)`` writes the inference mode of a program of `compile_program`, with
      the present parameters. `load_program` loads it, and if `onnx` is true,
      ``gluon_edbatch_runtime.load_program``, too.

    Parameters
    ----------
    net : gluon.Block or Program
        A model for one sample, or a compiled program. Exported cells are named by their attributes:
        ``net.tree_lstm.cell`` becomes ``cells.tree_lstm.cell``.
    samples : sequence or batching
        Typical samples, to write the whole model: they have each cell called in each way, each
        field of the user's objects, and each type that a field has. A few hundred are enough. Or a
        scope that was recorded without ``autograd.record()``, to write the cells. Calls that still
        wait in the scope are evaluated. A program has no samples: its folder stands here.
    folder : str or Path
        Where the bundle is written. A complete new bundle replaces an earlier one.
    unpack : bool, default False
        Whether samples are tuples of arguments. For whole models only.
    scheduler : str or Scheduler
        Which calls run together: see `batching`. For whole models only.
    onnx : bool, default False
        Whether to write each network as ONNX, too, for ``gluon_edbatch_runtime``. Needs the package
        ``onnx``, older than 1.19. For programs only.
    cpp : bool, default False
        Whether to write sources of a C++ program, which ``make`` builds there with g++ and
        MXNet's shared library. The program runs the samples of a file: ``./program --help``. For
        programs only.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    BundleError
        If something cannot be exported: the message has the line of the user's code, or names the
        cell, field or network, and says why. Also if the arguments do not belong together: the
        message has the right call. Nothing is written then.

    Examples
    --------
    >>> edb.export(net, samples, 'model')

    >>> with edb.batching() as scope:
    ...     scores = [net(sample) for sample in samples]
    >>> edb.forward(scores)
    >>> edb.export(net, scope, 'cells')

    >>> program = edb.compile_program(classify, word)
    >>> edb.export(program, 'program', cpp=True)
    """
    if not isinstance(net, (gluon.Block, Program)):
        raise BundleError(f'export() takes a Block or a Program, not {brief(net)}')
    of_models, of_programs = unpack or scheduler != DEFAULT_SCHEDULER, onnx or cpp
    if isinstance(net, Program):
        if folder is None:
            samples, folder = None, samples
        fits, call = samples is None and not of_models, 'program, folder, onnx=..., cpp=...'
    elif isinstance(samples, batching):
        fits, call = not (of_models or of_programs), 'net, scope, folder'
    else:
        fits = samples is not None and not of_programs
        call = 'net, samples, folder, unpack=..., scheduler=...'
    if not fits or not isinstance(folder, (str, PathLike)):
        raise BundleError(f'export() cannot take these arguments together: call edb.export({call})')
    if isinstance(net, Program):
        write_program(net.inference, net._ctx, folder, onnx, cpp)
    elif isinstance(samples, batching):
        with BundleWriter(folder, 'cells') as bundle:
            bundle.content.update(CellsContent(net, samples).written(bundle))
    else:
        _write_model(net, samples, folder, unpack, scheduler)
    return Path(folder)


def export_cells(net: gluon.Block, scope: batching, folder: Union[str, Path]) -> Path:
    """Deprecated: call ``export(net, scope, folder)``, which writes the same bundle.

    Parameters
    ----------
    net : gluon.Block
        The model whose cells are written.
    scope : batching
        A scope that has recorded samples.
    folder : str or Path
        Where the bundle is written.

    Returns
    -------
    Path
        The folder.
    """
    told = 'export_cells() is deprecated: call edb.export(net, scope, folder)'
    warnings.warn(told, DeprecationWarning, stacklevel=2)
    return export(net, scope, folder)


def _write_model(
    net: gluon.Block, samples: Any, folder: Union[str, Path], unpack: bool, scheduler: Any
) -> None:
    """Write a whole model (see `export`)."""
    arguments = [tuple(sample) if unpack else (sample,) for sample in samples]
    if not arguments or len({len(each) for each in arguments}) != 1:
        raise BundleError('export() needs samples, which have equally many arguments')
    # Sentences that are packed would be of types without the shapes that users see.
    options = current_options().but(buckets=False)
    with batching(scheduler, None, options) as scope:  # on copies, which the code may write to
        with _sites_of_reads() as reads:
            functional.forward([net(*each) for each in deepcopy(arguments)])
    names = names_of_blocks(net)
    with BundleWriter(folder, 'model') as bundle:
        cells = CellsContent(net, scope)
        if 'net' in cells.cells:
            raise BundleError('the model is a single cell: export(net, scope, folder) writes it')
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
