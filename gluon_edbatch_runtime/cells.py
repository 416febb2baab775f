"""Load the cells of a bundle, and find their types by the kinds of a call's arguments."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np

from gluon_edbatch_core.branching.pytree import flatten, unflatten
from gluon_edbatch_core.bundle.cell_program import CellProgram, NotInNumPy
from gluon_edbatch_core.bundle.manifest import Bundle, items_of, read_bundle, shape_of
from gluon_edbatch_core.errors import BundleError, RecordError
from gluon_edbatch_core.native.row_program import RowsOf, row_program
from gluon_edbatch_core.plan.call_type import Argument, Kind, Split
from gluon_edbatch_core.schedule import FSMScheduler
from gluon_edbatch_core.schedule.policy import policy_of
from gluon_edbatch_core.short_repr import brief

from . import nd
from .calls import CURRENT, NUMBER, Cell, Form, Ragged, Stacks, Store, Value, new_ragged, new_value
from .forms import AnyCall, CellType, Output
from .native_operators import NativeForm
from .recording import Recording

KIND = 'cells'
_MOST_JOINED = 64, 1 << 24  # times all weights, and elements besides
WHILE_READ = (  # what a manifest that does not make sense comes to
    KeyError, TypeError, IndexError, ValueError, AttributeError, OverflowError, NotInNumPy,
)  # fmt: skip


class BundledCell(Cell):
    """A cell that knows its types, and its programs for arguments of any shapes, each with the
    template of its arguments."""

    def __init__(self, name: str, children: int):
        super().__init__(name, children)
        self.types: list[tuple[Any, CellType]] = []
        self.programs: list[tuple[Any, AnyCall]] = []
        self.states: list[list[int]] = []  # shapes, with -1 for the batch

    def __repr__(self) -> str:
        return f'<Cell {self.name}: {", ".join(str(kind) for _, kind in self.types)}>'

    def begin_state(self, batch_size: int = 0, **options: Any) -> list[np.ndarray]:
        """Return states of zeros, if the cell is a recurrent one; options have no effect."""
        sizes = [[batch_size if size < 0 else size for size in shape] for shape in self.states]
        return [nd.zeros(shape) for shape in sizes]

    def run_eagerly(self, args):
        """Run a call outside scopes eagerly; return arrays."""
        log = Recording()
        token = CURRENT.set(log)
        try:
            results = self(*args)
        finally:
            CURRENT.reset(token)
        leaves: list[Value] = []
        template = flatten(results, Value, leaves)
        return unflatten(template, iter([leaf.asnumpy() for leaf in leaves]))

    def call_unknown(self, log, args):
        """Convert arrays, and values of other scopes, to values, and record the call."""
        args = tuple([_as_values(log, arg) for arg in args])
        if self.children and len(args) == 2 and not isinstance(args[1], Ragged):
            parts = zip(*args[1]) if self.children > 1 else [args[1]]
            for part in parts:
                stores = {value.store for value in part}
                if len(stores) > 1:
                    raise RecordError(f'{self.name} got children of different shapes: {stores}')
        return self.record(log, args)

    def resolve(self, log, args) -> Form:
        """Return the form of a new kind of call; raise if the bundle has none."""
        args = tuple([_as_values(log, arg) for arg in args])
        form, program = self._fitting(args), self._program(args)
        if form is not None:
            return form
        if program is not None:
            leaves: list[Any] = []
            for arg in args:
                _template(arg, leaves)
            if any([kind is Kind.RAGGED for kind, _ in leaves]):
                raise Stacks
            return program.form([store for _, store in leaves])
        shown = ', '.join(str(arg) if isinstance(arg, Value) else brief(arg) for arg in args)
        kinds = '; '.join([str(kind) for _, kind in self.types] or ['other arguments'])
        raise RecordError(
            f'{self.name} was not exported for calls with ({shown}), but for {kinds}: let the '
            'scope that is exported have such a call'
        )

    def _fitting(self, args: Any) -> Optional[Form]:
        """Return the form of a call of a type that the bundle has; None if it has none."""
        leaves: list[Any] = []
        template = [_template(arg, leaves) for arg in args]
        for known, kind in self.types:
            is_like = known == template and len(leaves) == len(kind.arguments)
            if is_like and all(map(_fits, leaves, kind.arguments)):
                rows = {leaf.rows for _, leaf in leaves if leaf is not None}
                if self.programs and (len(rows) > 1 or (kind.is_ragged and rows - {1})):
                    return None
                if len(rows) > 1:
                    raise RecordError(f'{self.name} got arguments of different rows: {rows}')
                if kind.is_ragged and rows - {1}:
                    raise RecordError(f'{self.name} got ragged values of several rows')
                return kind.form(rows.pop() if rows else 1)
        return None

    def _program(self, args: Any) -> Optional[AnyCall]:
        """Return the program of calls with arguments of such a structure; None if there is none."""
        template = [_template(arg, []) for arg in args]
        return next((each for known, each in self.programs if known == template), None)


class FlatteningCell(BundledCell):
    """A cell that is called with tuples of values, and takes these one by one."""

    def __call__(self, *args: Any) -> Any:
        """Call the cell with the values of all tuples."""
        flat: list[Any] = []
        for arg in args:
            flat.extend(arg if isinstance(arg, (list, tuple)) else [arg])
        return super().__call__(*flat)


def _as_values(log: Recording, arg: Any) -> Any:
    """Return an argument with values of this scope in place of arrays."""
    if isinstance(arg, Value):
        return log.value(arg)
    if isinstance(arg, (int, float)) and not isinstance(arg, bool):
        return arg if type(arg) in (int, float) else float(arg)
    if arg is None:
        return arg
    if isinstance(arg, Ragged):  # of another scope, or made outside of scopes
        values = [new_value(arg.log, arg.store, number) for number in arg.numbers]
        return new_ragged(log, arg.store, [log.value(value).number for value in values])
    if isinstance(arg, (list, tuple)):
        items = [_as_values(log, item) for item in arg]
        return items if isinstance(arg, list) else tuple(items)
    if isinstance(arg, np.generic):
        return arg.item()
    if isinstance(arg, np.ndarray) and arg.ndim:
        return log.value(arg)
    raise RecordError(f'a cell takes values, numbers and arrays, not {brief(arg)}')


def _template(arg: Any, leaves: list[Any]) -> Any:
    """Return an argument's structure in the manifest's form; append what is known of its values."""
    if arg is None:
        return None
    if isinstance(arg, (list, tuple)):
        return {type(arg).__name__: [_template(item, leaves) for item in arg]}
    if isinstance(arg, Ragged):
        leaves.append((Kind.RAGGED, arg.store))
    else:
        leaves.append((Kind.ROWS, arg.store if isinstance(arg, Value) else NUMBER))
    return 'value'


def _fits(leaf: tuple[Kind, Store], argument: Argument) -> bool:
    kind, store = leaf
    return kind == argument.kind and (store is None or store.arena == argument.arena)


class Cells:
    """A model's cells, by their names in it: ``cells.tree_lstm.cell``."""

    def __init__(self, name: str = ''):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f'{self._name or "the bundle"} has no cell {name!r}; it has '
            f'{", ".join(sorted(each for each in vars(self) if not each.startswith("_")))}'
        )

    def __getitem__(self, name: Union[str, int]) -> Any:
        return getattr(self, str(name))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the cells of a list, by their numbers."""
        names = sorted(int(name) for name in vars(self) if name.isdigit())
        return iter([self[name] for name in names])


def load_cells(folder: Union[str, Path]) -> Cells:
    """Load the cells of a bundle that ``gluon_edbatch.export(net, scope, folder)`` wrote.

    Everything is checked first; nothing of the bundle is executed.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    Cells
        An object with an attribute for each cell; cells of an inner block are attributes of an
        attribute with the block's name.

    Raises
    ------
    BundleError
        If the folder is not a complete, unchanged bundle of cells that this version can read.
    """
    bundle = read_bundle(folder, KIND)
    try:
        return loaded_cells(bundle)[0]
    except WHILE_READ as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(
            f'{bundle.folder} has a manifest that does not make sense: '
            f'{type(error).__name__}: {error}'
        ) from error


def loaded_cells(bundle: Bundle) -> tuple[Cells, dict[str, BundledCell]]:
    """Return the cells of a bundle as a model's attributes, and by name."""
    content = bundle.content
    policy = items_of(content, 'policy', dict)
    scheduler = FSMScheduler(policy_of(policy) if policy else None, learn=False)
    loaded = Cells(str(bundle.folder))
    weights = Weights([bundle.array(entry) for entry in items_of(content, 'weights', list)])
    cells = {
        name: (FlatteningCell if entry.get('flattens') else BundledCell)(
            name, items_of(entry, 'children', int)
        )
        for name, entry in items_of(content, 'cells', dict).items()
    }
    for name, entry in content['cells'].items():
        for shape in entry.get('states', ()):
            shape_of([abs(size) for size in shape])
            cells[name].states.append(list(shape))
    for entry in items_of(content, 'types', list):
        kind = _type(entry, weights, scheduler)
        for name in entry['cells']:
            cells[name].types.append((entry['template'], kind))
    for entry in items_of(content, 'programs', list):
        call = _any_call(entry, weights, scheduler)
        for name in entry['cells']:
            cells[name].programs.append((entry['template'], call))
    for name, cell in cells.items():
        _place(loaded, name, cell)
    return loaded, cells


class Weights(list[np.ndarray]):
    """A bundle's weights, and those that native programs read as one array."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        super().__init__(arrays)
        self._joined: dict[tuple[int, ...], np.ndarray] = {}
        times, more = _MOST_JOINED
        self._left = times * sum([array.size for array in arrays]) + more  # elements

    def joined(self, places: tuple[int, ...]) -> np.ndarray:
        """Return weights one after the other; itself for one."""
        if places not in self._joined:
            arrays = [self[place] for place in places]
            self._left -= sum([array.size for array in arrays])
            if self._left < 0:
                raise BundleError('native programs in the manifest join too many weights')
            alone = len(arrays) == 1 and arrays[0].flags.c_contiguous
            whole = arrays[0] if alone else np.concatenate([each.ravel() for each in arrays])
            self._joined[places] = whole
        return self._joined[places]


def _type(entry: dict[str, Any], weights: Weights, scheduler: FSMScheduler) -> CellType:
    if any(each['kind'] not in ('rows', 'ragged') for each in entry['arguments']):
        raise BundleError(f'{brief(entry["arguments"])} in the manifest are no arguments')
    arguments = [Argument(_arena(each), Kind(each['kind']), False) for each in entry['arguments']]
    outputs = [Output(_arena(each), items_of(each, 'factor', int)) for each in entry['outputs']]
    if any([output.rows < 1 for output in outputs]):
        raise BundleError(f'{brief(entry["outputs"])} in the manifest are no results')
    named = {name: weights[place] for name, place in entry['weights'].items()}
    ragged = {place for place, each in enumerate(arguments) if each.kind is Kind.RAGGED}
    program = CellProgram(entry['nodes'], entry['heads'], named, ragged)
    if len(outputs) != len(program.heads):
        raise BundleError(f'{brief(entry["outputs"])} in the manifest are not as many as results')
    nested = _nested_results(entry, program)
    fills, native = items_of(entry, 'fills', bool), entry.get('native')
    form: Optional[NativeForm] = None
    splits: list[Split] = []
    if native is not None:
        form = _native(native, arguments, outputs, weights)
        splits = [_split(each, entry['name'], arguments, outputs, weights)
                  for each in items_of(native, 'splits', list)]  # fmt: skip
    return CellType(entry['name'], arguments, outputs, nested, program, fills, scheduler,
                    native=form, splits=splits)  # fmt: skip


def _native(
    entry: dict[str, Any],
    arguments: Sequence[Argument],
    outputs: Sequence[Output],
    weights: Weights,
) -> NativeForm:
    """Return the checked native program of a type or of a part of one, with its weights."""
    arenas = [each.arena for each in arguments] + [each.arena for each in outputs]
    program = row_program(
        entry,
        [RowsOf(math.prod(each.arena[0]), each.rows, each.kind is Kind.RAGGED)
         for each in arguments],
        [RowsOf(math.prod(each.arena[0]), each.rows) for each in outputs],
        [each.size for each in weights],
    )  # fmt: skip
    arrays = [weights.joined(places) for places, _ in program.parameters]
    dtypes = {dtype for _, dtype in arenas} | {each.dtype for each in arrays}
    if dtypes not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise BundleError(f'a native program of {brief(sorted(map(str, dtypes)))} in the manifest')
    return NativeForm(program, arrays)


def _split(
    entry: dict[str, Any],
    name: str,
    arguments: Sequence[Argument],
    outputs: Sequence[Output],
    weights: Weights,
) -> Split:
    """Return the two parts of a type, of which one needs known arguments only."""
    positions = tuple(shape_of(entry['positions']))
    if not positions or len({*positions}) < len(positions):
        raise BundleError(f'{brief(positions)} in the manifest are no arguments of a part')
    found = tuple([Output((tuple(shape_of(shape)), np.dtype(dtype)), 1)
                   for shape, dtype in entry['found']])  # fmt: skip
    own = [arguments[position] for position in positions]
    more = [*arguments, *[Argument(each.arena, Kind.ROWS, False) for each in found]]
    early, late = [
        CellType(f'{name}, {part}', takes, gives, 0, None,
                 native=_native(entry[part], takes, gives, weights))
        for part, takes, gives in (('early', own, found), ('late', more, outputs))
    ]  # fmt: skip
    return Split(positions, early, found, late)


def _any_call(entry: dict[str, Any], weights: list[np.ndarray], scheduler: FSMScheduler) -> AnyCall:
    named = {name: weights[place] for name, place in entry['weights'].items()}
    program = CellProgram(entry['nodes'], entry['heads'], named)
    by_row = items_of(entry, 'by_row', bool)
    nested = _nested_results(entry, program)
    return AnyCall(entry['name'], program, nested, by_row, scheduler)


def _nested_results(entry: dict[str, Any], program: CellProgram) -> Any:
    """Return the structure of results. Compiled code does not check their numbers again."""
    nested, leaves = _nested(entry['results']), list[int]()
    flatten(nested, int, leaves)
    if not program.heads or not set(leaves) <= set(range(len(program.heads))):
        raise BundleError(f'{brief(entry["results"])} in the manifest are no results')
    return nested


def _arena(entry: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype]:
    return tuple(shape_of(entry['row_shape'])), np.dtype(entry['dtype'])


def _nested(template: Any) -> Any:
    if isinstance(template, int):
        return template
    ((kind, items),) = template.items()
    found = [_nested(item) for item in items]
    return found if kind == 'list' else tuple(found)


def _place(cells: Cells, name: str, cell: BundledCell) -> None:
    first, _, rest = name.partition('.')
    if not rest:
        vars(cells)[first] = cell
        return
    inner = vars(cells).setdefault(first, Cells(f'{cells._name}: {first}'))
    _place(inner, rest, cell)
