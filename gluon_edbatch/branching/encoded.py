"""Programs as data: the content of a bundle's manifest, and back, checked."""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ..errors import BundleError
from .calculate import KNOWN
from .graph import (
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
)
from .structure import decoded, decoded_constant, encoded, encoded_constant

_KINDS = ('float', 'int', 'bool')
_DTYPES = ('float16', 'float32', 'float64', 'uint8', 'int8', 'int32', 'int64', 'bool')


def encoded_spec(spec: Spec) -> Any:
    """A tensor's dtype and shape, or a number's kind."""
    return spec.kind if isinstance(spec, NumberSpec) else [spec.dtype, list(spec.shape)]


def decoded_spec(data: Any) -> Any:
    """What `encoded_spec` was given."""
    if data in _KINDS:
        return NumberSpec(data)
    dtype, shape = data
    _check(dtype in _DTYPES and all(isinstance(each, int) and each > 0 for each in shape), data)
    return TensorSpec(tuple(shape), dtype)


def encoded_network(network: Network) -> dict[str, Any]:
    """All but its graph, which is a host's."""
    return {
        'inputs': list(map(encoded_spec, network.inputs)),
        'outputs': list(map(encoded_spec, network.outputs)),
        'batched': network.batched,
        'operators': network.operators,
    }


def decoded_network(data: Mapping[str, Any], graph: Any) -> Network:
    """What `encoded_network` was given, with a graph."""
    inputs, outputs = (
        tuple(map(decoded_spec, data['inputs'])),
        tuple(map(decoded_spec, data['outputs'])),
    )
    _check(isinstance(data['batched'], bool), data['batched'])
    return Network(graph, inputs, outputs, data['batched'], int(data['operators']))


def encoded_block(block: ProgramBlock) -> dict[str, Any]:
    """A block as plain JSON."""
    return {
        'name': block.name,
        'takes': list(map(encoded_spec, block.takes)),
        'steps': [_encoded_step(step) for step in block.steps],
        'end': _encoded_end(block.end),
    }


def decoded_blocks(
    data: Sequence[Mapping[str, Any]], networks: Sequence[Network], parameters: int, constants: int
) -> list[ProgramBlock]:
    """What `encoded_block` was given, one after the other.

    Raises
    ------
    BundleError
        If they are none, or refer to what is not there.
    """
    try:
        blocks = [_decoded_block(each) for each in data]
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
    return {'constant': encoded_constant(place[0])} if isinstance(place, tuple) else place


def _places(places: Sequence[Any]) -> list[Any]:
    return list(map(_place, places))


def _encoded_step(step: Step) -> dict[str, Any]:
    if isinstance(step, RunNetwork):
        return {
            'do': 'run',
            'network': step.network,
            'parameters': list(step.parameters),
            'inputs': list(step.inputs),
            'outputs': list(step.outputs),
        }
    if isinstance(step, Calculate):
        operands = _places(step.operands)
        return {
            'do': 'calculate', 'output': step.output, 'op': step.op, 'operands': operands,
            'line': step.line,
        }  # fmt: skip
    if isinstance(step, ReadNumber):
        return {
            'do': 'read', 'output': step.output, 'input': step.input, 'kind': step.kind,
            'rivals': list(step.rivals), 'line': step.line,
        }  # fmt: skip
    if isinstance(step, GiveTensor):
        return {'do': 'give', 'output': step.output, 'input': step.input, 'dtype': step.dtype}
    return {'do': 'fill', 'output': step.output, 'constant': step.constant}


def _encoded_goto(to: Goto) -> dict[str, Any]:
    return {'block': to.block, 'values': _places(to.values)}


def _encoded_end(end: End) -> dict[str, Any]:
    if isinstance(end, Finish):
        return {'finish': encoded(end.template), 'values': _places(end.values)}
    if isinstance(end, Goto):
        return {'goto': _encoded_goto(end)}
    return {
        'if': end.condition,
        'then': _encoded_goto(end.then),
        'else': _encoded_goto(end.other),
        'line': end.line,
    }


# --- and back ------------------------------------------------------------------------------------


def _decoded_block(data: Mapping[str, Any]) -> ProgramBlock:
    takes = tuple(map(decoded_spec, data['takes']))
    steps = [_STEPS[step['do']](step) for step in data['steps']]
    return ProgramBlock(takes, steps, _decoded_end(data['end']), str(data['name']))


def _value(data: Any) -> Any:
    if isinstance(data, dict):
        return (decoded_constant(data['constant']),)
    _check(isinstance(data, int) and not isinstance(data, bool), data)
    return data


def _values(data: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(_value, data))


def _decoded_goto(data: Mapping[str, Any]) -> Goto:
    return Goto(_value(data['block']), _values(data['values']))


def _decoded_end(data: Mapping[str, Any]) -> End:
    if 'finish' in data:
        return Finish(decoded(data['finish']), _values(data['values']))
    if 'goto' in data:
        return _decoded_goto(data['goto'])
    then, other = _decoded_goto(data['then']), _decoded_goto(data['else'])
    return Choose(_value(data['if']), then, other, str(data['line']))


def _decoded_calculate(data: Mapping[str, Any]) -> Calculate:
    _check(data['op'] in KNOWN, data['op'])
    operands = _values(data['operands'])
    return Calculate(_value(data['output']), data['op'], operands, str(data['line']))


def _decoded_read(data: Mapping[str, Any]) -> ReadNumber:
    _check(data['kind'] in _KINDS, data['kind'])
    rivals = _values(data.get('rivals', ()))  # earlier bundles have none
    return ReadNumber(
        _value(data['output']), _value(data['input']), data['kind'], rivals, str(data.get('line'))
    )


def _decoded_give(data: Mapping[str, Any]) -> GiveTensor:
    _check(data['dtype'] in _DTYPES, data['dtype'])
    return GiveTensor(_value(data['output']), _value(data['input']), data['dtype'])


_STEPS: dict[str, Callable[[Mapping[str, Any]], Step]] = {
    'run': lambda data: RunNetwork(
        _value(data['network']),
        _values(data['parameters']),
        _values(data['inputs']),
        _values(data['outputs']),
    ),
    'calculate': _decoded_calculate,
    'read': _decoded_read,
    'give': _decoded_give,
    'fill': lambda data: FillTensor(_value(data['output']), _value(data['constant'])),
}


def _check_block(
    block: ProgramBlock,
    blocks: Sequence[ProgramBlock],
    networks: Sequence[Network],
    parameters: int,
    constants: int,
) -> None:
    """Whether it reads only what is there, and leads to blocks that take what it gives."""
    there = set(range(len(block.takes)))
    for step in block.steps:
        read, written = _read_and_written(step)
        _check(there.issuperset(place for place in read if not isinstance(place, tuple)), step)
        there.update(written)
        if isinstance(step, RunNetwork):
            network = networks[step.network]
            _check(step.network >= 0 and len(step.inputs) == len(network.inputs), step)
            _check(len(step.outputs) == len(network.outputs), step)
            _check(all(0 <= each < parameters for each in step.parameters), step)
        elif isinstance(step, FillTensor):
            _check(0 <= step.constant < constants, step)
    end = block.end
    values: list[Any] = [end.condition] if isinstance(end, Choose) else []
    values += [each for to in gotos(end) for each in to.values]
    values += list(end.values) if isinstance(end, Finish) else []
    _check(there.issuperset(place for place in values if not isinstance(place, tuple)), end)
    for to in gotos(end):
        _check(0 <= to.block < len(blocks), to)
        _check(len(to.values) == len(blocks[to.block].takes), to)


def _read_and_written(step: Any) -> tuple[Sequence[Any], Sequence[int]]:
    if isinstance(step, RunNetwork):
        return step.inputs, step.outputs
    if isinstance(step, Calculate):
        return step.operands, [step.output]
    if isinstance(step, ReadNumber):
        return [step.input, *step.rivals], [step.output]
    return [] if isinstance(step, FillTensor) else [step.input], [step.output]
