"""Encode programs as data, the content of a bundle's manifest, and decode and check them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Union

from ..errors import BundleError
from .host_arithmetic import KNOWN
from .program_graph import (
    Calculate,
    Choose,
    End,
    FillTensor,
    Finish,
    GiveTensor,
    Goto,
    Network,
    NumberSpec,
    ProgramBlock,
    ReadNumber,
    RunNetwork,
    Spec,
    Step,
    TensorSpec,
    gotos,
    read_by,
    written_by,
)
from .pytree import deserialised, deserialised_constant, serialised, serialised_constant

_KINDS = ('float', 'int', 'bool')
_DTYPES = ('float16', 'float32', 'float64', 'uint8', 'int8', 'int32', 'int64', 'bool')


def serialised_spec(spec: Spec) -> Any:
    """Return a tensor's dtype and shape, or a number's kind."""
    return spec.kind if isinstance(spec, NumberSpec) else [spec.dtype, list(spec.shape)]


def deserialised_spec(data: Any) -> Any:
    """Return the spec that `serialised_spec` got."""
    if data in _KINDS:
        return NumberSpec(data)
    dtype, shape = data
    _check(dtype in _DTYPES and all(isinstance(each, int) and each > 0 for each in shape), data)
    return TensorSpec(tuple(shape), dtype)


def serialised_network(network: Network) -> dict[str, Any]:
    """Return a network as plain JSON, without its graph, which hosts store separately."""
    return {
        'inputs': list(map(serialised_spec, network.inputs)),
        'outputs': list(map(serialised_spec, network.outputs)),
        'batched': network.batched,
        'operators': network.operators,
    }


def deserialised_network(data: Mapping[str, Any], graph: Any) -> Network:
    """Return the network that `serialised_network` got, with a graph."""
    inputs, outputs = (tuple(map(deserialised_spec, data[name])) for name in ('inputs', 'outputs'))
    _check(isinstance(data['batched'], bool), data['batched'])
    return Network(graph, inputs, outputs, data['batched'], int(data['operators']))


def serialised_block(block: ProgramBlock) -> dict[str, Any]:
    """Return a block as plain JSON."""
    return {
        'name': block.name,
        'takes': list(map(serialised_spec, block.takes)),
        'steps': [{'do': _NAMES[type(step)], **_fields(step)} for step in block.steps],
        'end': _serialised_end(block.end),
    }


def deserialised_blocks(
    data: Sequence[Mapping[str, Any]], networks: Sequence[Network], parameters: int, constants: int
) -> list[ProgramBlock]:
    """Return the blocks that `serialised_block` got. Raise BundleError for other data, or if they
    refer to something that does not exist."""
    try:
        blocks = [_deserialised_block(each) for each in data]
        for block in blocks:
            _check_block(block, blocks, networks, parameters, constants)
    except BundleError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise BundleError(
            f'the manifest describes no program: {type(error).__name__}: {error}'
        ) from None
    _check(bool(blocks), 'no blocks')
    return blocks


def _check(holds: bool, what: Any) -> None:
    if not holds:
        raise BundleError(f'the manifest describes no program: {str(what)[:80]!r} does not fit')


def _place(place: Any) -> Any:
    return {'constant': serialised_constant(place[0])} if isinstance(place, tuple) else place


def _places(places: Sequence[Any]) -> list[Any]:
    return list(map(_place, places))


def _fields(each: Union[Step, Goto]) -> dict[str, Any]:
    """Return the fields of a step or jump by name."""
    return {
        name: _places(field) if isinstance(field, tuple) else field
        for name, field in each._asdict().items()
    }


def _serialised_end(end: End) -> dict[str, Any]:
    if isinstance(end, Finish):
        return {'finish': serialised(end.template), 'values': _places(end.values)}
    if isinstance(end, Goto):
        return {'goto': _fields(end)}
    return {
        'if': end.condition,
        'then': _fields(end.then),
        'else': _fields(end.other),
        'line': end.line,
    }


# --- and back ------------------------------------------------------------------------------------


def _deserialised_block(data: Mapping[str, Any]) -> ProgramBlock:
    takes = tuple(map(deserialised_spec, data['takes']))
    steps = [_decoded(_STEPS[step['do']], step) for step in data['steps']]
    return ProgramBlock(takes, steps, _deserialised_end(data['end']), str(data['name']))


def _value(data: Any) -> Any:
    if isinstance(data, dict):
        return (deserialised_constant(data['constant']),)
    _check(isinstance(data, int) and not isinstance(data, bool), data)
    return data


def _values(data: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_value, data))


def _deserialised_end(data: Mapping[str, Any]) -> End:
    if 'finish' in data:
        return Finish(deserialised(data['finish']), _values(data['values']))
    if 'goto' in data:
        return _decoded(Goto, data['goto'])
    then, other = _decoded(Goto, data['then']), _decoded(Goto, data['else'])
    return Choose(_value(data['if']), then, other, str(data['line']))


def _one_of(known: Collection[str]) -> Callable[[Any], str]:
    def decode(data: Any) -> str:
        _check(data in known, data)
        return data

    return decode


_STEPS: dict[str, type[Any]] = {
    'run': RunNetwork,
    'calculate': Calculate,
    'read': ReadNumber,
    'give': GiveTensor,
    'fill': FillTensor,
}
_NAMES = {kind: name for name, kind in _STEPS.items()}
_FIELDS: dict[str, Callable[[Any], Any]] = {  # all others are one value, or a number of something
    **dict.fromkeys(('parameters', 'inputs', 'outputs', 'operands', 'rivals', 'values'), _values),
    'op': _one_of(KNOWN),
    'kind': _one_of(_KINDS),
    'dtype': _one_of(_DTYPES),
    'line': str,
}


def _decoded(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """Return a step or jump; earlier bundles lack fields that have defaults."""
    names = [name for name in kind._fields if name in data or name not in kind._field_defaults]
    return kind(**{name: _FIELDS.get(name, _value)(data[name]) for name in names})


def _check_block(
    block: ProgramBlock,
    blocks: Sequence[ProgramBlock],
    networks: Sequence[Network],
    parameters: int,
    constants: int,
) -> None:
    """Raise unless a block reads existing values, and leads to blocks that take what it passes."""
    there = set(range(len(block.takes)))
    for step in block.steps:
        _check(there.issuperset(read_by(step)), step)
        there.update(written_by(step))
        if isinstance(step, RunNetwork):
            network = networks[step.network]
            _check(step.network >= 0 and len(step.inputs) == len(network.inputs), step)
            _check(len(step.outputs) == len(network.outputs), step)
            _check(all(0 <= each < parameters for each in step.parameters), step)
        elif isinstance(step, FillTensor):
            _check(0 <= step.constant < constants, step)
    end = block.end
    _check(there.issuperset(read_by(end)), end)
    for to in gotos(end):
        _check(0 <= to.block < len(blocks), to)
        _check(len(to.values) == len(blocks[to.block].takes), to)
