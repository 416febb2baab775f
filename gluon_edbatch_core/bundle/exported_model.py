"""A whole model from the data of its bundle. Needs NumPy only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from ..errors import BundleError, RecordError
from ..short_repr import brief
from .made_code import USERS, MadeCode, Namespace, Reference, Steps
from .sample_reader import SampleReader
from .value_operators import NAMES


def modules_of(edb: Any, nd: Any) -> dict[str, dict[str, Any]]:
    """Return the names that exported functions may use of a host's package, and of `nd`, its
    operators and makers of arrays."""
    of_nd = {name: getattr(nd, name) for name in sorted(NAMES)}
    of_edb = {name: getattr(edb, name) for name in ('concat', 'ragged', 'stack')}
    return {'edb': of_edb, 'edb.nd': of_nd, 'mxnet': {}, 'mxnet.nd': of_nd}


class ModelCell:
    """A cell, with blocks within it that the code names."""

    def __init__(self, cell: Any):
        self.__cell = cell

    def __call__(self, *args: Any) -> Any:
        """Call the cell."""
        return self.__cell(*args)

    def begin_state(self, *args: Any, **options: Any) -> Any:
        """Return the first states of a recurrent cell."""
        return self.__cell.begin_state(*args, **options)


class ModelParameter:
    """A parameter of a block that is no cell."""

    def __init__(self, value: Any):
        self._value = value

    def data(self, ctx: Any = None) -> Any:
        """Return the weights."""
        return self._value


class ModelPart:
    """A block of the model that is no cell: calling it runs its `forward`."""

    forward: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        """Return what `forward` returns."""
        return self.forward(*args)


class Blocks(ModelPart):
    """Blocks that run one after the other, as a Sequential."""

    def __init__(self, blocks: Sequence[Any]):
        self._blocks = list(blocks)

    def forward(self, value: Any) -> Any:
        """Return the result of the last block."""
        for block in self._blocks:
            value = block(value)
        return value

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._blocks)

    def __getitem__(self, place: Any) -> Any:
        found = self._blocks[place]
        return Blocks(found) if isinstance(found, list) else found


def _checked(name: str) -> str:
    if not name.isidentifier() or name.startswith('__'):
        raise BundleError(f'{name!r} in the manifest is no name of an attribute')
    return name


class ExportedModel:
    """A model that runs one sample.

    Parameters
    ----------
    content : dict
        Of the manifest: ``functions``, ``classes``, ``parts``, ``net``, ``arguments``, ``fields``,
        and ``waits``: whether samples may wait where they read (see `suspending`). `net` returns a
        generator then, if its code is among `generators`.
    cell_of : callable
        Returns the cell of a name.
    arrays : list of numpy.ndarray
    modules : dict
        Names that functions may use of modules of the host, by the module.
    most_steps : int, optional
        Of loops, for one list of samples.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        cell_of: Callable[[str], Any],
        arrays: Sequence[Any],
        modules: Mapping[str, Mapping[str, Any]],
        most_steps: Optional[int] = None,
    ):
        self.steps = Steps() if most_steps is None else Steps(most_steps)
        self._cell_of, self._arrays, self._modules = cell_of, arrays, modules
        self._parts: list[Any] = []
        self._cells = {
            name: type('Cell', (ModelCell,), {'__module__': USERS})(cell_of(name))
            for name, inner in content['inner'].items() if inner
        }  # fmt: skip
        self._values: dict[int, Any] = {}  # arrays of MXNet's, by their numbers
        self._content = content
        made = MadeCode(content, self._resolve, self.steps, content.get('waits') is True)
        for entry in content['parts']:
            cls = made.classes[entry['class']]
            self._parts.append(type(cls.__name__, (cls, ModelPart), {'__module__': USERS})())
        for name, entry in content['inner'].items():
            for attribute, each in entry.items():
                vars(self._cells[name])[_checked(attribute)] = made.value(each)
        for part, entry in zip(self._parts, content['parts']):
            for name, each in entry['attributes'].items():
                vars(part)[_checked(name)] = made.value(each)
        self.net = made.value(content['net'])
        kinds = {int(number): each for number, each in content['fields'].items()}
        reader = SampleReader(kinds, made.classes, modules['edb.nd']['array'])
        self._readers = [reader.reader(kind) for kind in content['arguments']]
        self.generators = made.generators

    def read(self, sample: Any, path: str) -> tuple:
        """Return the arguments of the model for a sample: JSON, or objects with its fields. A model
        of several arguments takes a list or tuple of them."""
        if len(self._readers) == 1:
            return (self._readers[0](sample, path),)
        if not isinstance(sample, (list, tuple)) or len(sample) != len(self._readers):
            raise RecordError(
                f'{path} must be a list of {len(self._readers)} arguments, not {brief(sample)}'
            )
        named = zip(self._readers, sample, range(len(sample)))
        return tuple([read(each, f'{path}[{place}]') for read, each, place in named])

    def _resolve(self, reference: Reference) -> Any:
        kind, what = reference
        if kind == 'cell':
            return self._cells[what] if what in self._cells else self._cell_of(what)
        if kind == 'part':
            return self._parts[what]
        if kind == 'array':
            array = self._arrays[what]
            return array if array.ndim else array[()]  # a number of NumPy's
        if kind in ('value', 'parameter'):
            if what not in self._values:
                made = self._values[what] = self._modules['edb.nd']['array'](self._arrays[what])
                if kind == 'parameter' and isinstance(made, np.ndarray):
                    made.flags.writeable, made.fixed = False, True  # type: ignore[attr-defined]
            return ModelParameter(self._values[what]) if kind == 'parameter' else self._values[what]
        if kind == 'module':
            inner = {name.rpartition('.')[2]: Namespace(name, names)
                     for name, names in self._modules.items()
                     if name.startswith(f'{what}.')}  # fmt: skip
            return {**self._modules[what], **inner}
        if kind == 'sequence':
            return Blocks([self._made_value(each) for each in what])
        module, _, name = str(what).rpartition('.')
        if kind == 'host' and name in self._modules.get(module, ()):
            return self._modules[module][name]
        raise BundleError(f'{brief([kind, what])} in the manifest refers to nothing')

    def _made_value(self, data: Any) -> Any:
        if data[0] in ('cell', 'part', 'sequence'):
            return self._resolve(Reference(*data))
        raise BundleError(f'{brief(data)} in the manifest is no block')
