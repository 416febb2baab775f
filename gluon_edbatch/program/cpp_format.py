"""Write programs as C++ on MXNet's C predict API: sources of a host, and its files.

Files in ``cpp/`` are copied for every program. A function for each block, and tables of blocks,
networks and files, are generated.
"""

import json
import math
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.branching.host_arithmetic import NUMBERS
from gluon_edbatch_core.branching.program_graph import (
    Calculate,
    Choose,
    GiveTensor,
    Goto,
    Network,
    NumberSpec,
    ProgramBlock,
    ProgramGraph,
    ReadNumber,
    RunNetwork,
    Spec,
    Step,
    TensorSpec,
    read_by,
)
from gluon_edbatch_core.branching.pytree import LEAF
from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.errors import BundleError

from ..subgraph.trace import INPUT
from .lower import PARAMETER

SOURCES = Path(__file__).with_name('cpp')
Pair = tuple[int, tuple[int, ...]]  # a network, and which of the program's parameters it has

_DTYPES = frozenset('float32 float64 uint8 int32 int8 int64 bool'.split())
_NUMBERS = {'float': 'double', 'int': 'int64_t', 'bool': 'bool'}
# Functions of `calculate.h`, and what they are given besides the line and the operands.
_CALCULATED = {
    **{
        op: ('arithmetic', f'{functor}()')
        for op, functor in {
            'add': 'Add', 'sub': 'Subtract', 'mul': 'Multiply', 'truediv': 'Divide',
            'floordiv': 'FloorDivide', 'mod': 'Remainder', 'pow': 'Power', 'neg': 'Negative',
            'pos': 'Positive', 'abs': 'Absolute', 'index': 'Index',
        }.items()
    },
    **{op: ('alike', f'std::bit_{op}<>()') for op in ('and', 'or', 'xor')},
    'lt': ('compare<true>', 'std::less<>()'),
    'le': ('compare<true>', 'std::less_equal<>()'),
    'gt': ('compare<true>', 'std::greater<>()'),
    'ge': ('compare<true>', 'std::greater_equal<>()'),
    'eq': ('compare<false>', 'std::equal_to<>()'),
    'ne': ('compare<false>', 'std::not_equal_to<>()'),
    # The second only where it is larger, or smaller, as Python has it.
    'max': ('alike', '[](auto x, auto y) { return y > x ? y : x; }'),
    'min': ('alike', '[](auto x, auto y) { return y < x ? y : x; }'),
    'not': ('each', 'std::logical_not<>()'),
    'bool': ('each', 'as<bool>'),
    'float': ('each', 'as<double>'),
    'int': ('as_int', 'std::trunc'),
    'round': ('as_int', 'std::nearbyint'),
    'floor': ('as_int', 'std::floor'),
    'ceil': ('as_int', 'std::ceil'),
    'sqrt': ('partial_function', 'std::sqrt, std::less<>(), "sqrt of a number that has none"'),
    'log': (
        'partial_function',
        'std::log, std::less_equal<>(), "log of a number that has none"',
    ),
    'exp': ('each', 'real<std::exp>'),
    'tanh': ('each', 'real<std::tanh>'),
}  # fmt: skip


def add_cpp(
    bundle: BundleWriter,
    graph: ProgramGraph,
    pairs: Sequence[Pair],
    parameters: Sequence[NDArray],
    max_steps: int,
) -> None:
    """Add the host's sources and its networks' parameters to a bundle that is complete otherwise.
    Raise BundleError for anything that the host cannot take."""
    content = bundle.content
    networks = []
    for place, (number, own) in enumerate(pairs):
        network, name = graph.networks[number], f'network{number}-{place}.params'
        bundle.add(name, _saved(network, [parameters[each] for each in own]))
        files = _file(bundle, content['networks'][number]['symbol']), _file(bundle, name)
        networks.append(_network(network, *files))
    constants = [
        f'{{{_file(bundle, entry["file"])}, {_spec(TensorSpec(array.shape, entry["dtype"]))}}}'
        for entry, array in zip(content['constants'], graph.constants)
    ]
    text = _program(graph, pairs, networks, constants, max_steps)
    bundle.add('program.cc', text.encode())
    for path in sorted(SOURCES.iterdir()):
        bundle.add(path.name, path.read_bytes())


def _saved(network: Network, weights: Sequence[NDArray]) -> bytes:
    """Return parameters in MXNet's format, with the names that its predictors want."""
    symbol = network.graph.symbol
    names = {name: f'arg:{name}' for name in symbol.list_arguments()}
    names.update((name, f'aux:{name}') for name in symbol.list_auxiliary_states())
    own = {PARAMETER % place: weight for place, weight in enumerate(weights)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'parameters')
        held = {names[name]: weight for name, weight in own.items() if name in names}
        mx.nd.save(str(path), held)
        return path.read_bytes()


# --- what is generated ---------------------------------------------------------------------------


def _program(
    graph: ProgramGraph,
    pairs: Sequence[Pair],
    networks: Sequence[str],
    constants: Sequence[str],
    max_steps: int,
) -> str:
    numbers = {pair: number for number, pair in enumerate(pairs)}
    functions = [_block(number, block, graph, numbers) for number, block in enumerate(graph.blocks)]
    tables = {
        'samples': [_spec(spec) for spec in graph.blocks[0].takes],
        'blocks': [_entry(number, block) for number, block in enumerate(graph.blocks)],
        'networks': networks,
        'constants': constants,
    }
    listed = ''.join(
        f'    // {name}\n    {{{_separated(items)}}},\n' for name, items in tables.items()
    )
    return (
        '// Generated by gluon_edbatch: a function for each block of the program, and its tables.\n'
        '#include "machine.h"\n\nnamespace edb {\nnamespace {\n\n'
        + '\n'.join(functions)
        + '\n}  // namespace\n\nconst Program kProgram = {\n'
        + f'{listed}    {max_steps}}};\n\n}}  // namespace edb\n'
    )


def _separated(items: Sequence[str]) -> str:
    return ',\n     '.join(items)


def _block(number: int, block: ProgramBlock, graph: ProgramGraph, numbers: dict[Pair, int]) -> str:
    """Return the function of a block; its values are numbered as in ``print(program)``."""
    read = set(read_by(block.end)).union(*map(read_by, block.steps))
    lines = [_taken(place, spec) for place, spec in enumerate(block.takes) if place in read]
    lines += [_step(step, numbers) for step in block.steps]
    lines += _end(block.end, graph)
    return f'void block{number}(Machine& m) {{\n' + ''.join(f'  {each}\n' for each in lines) + '}\n'


def _taken(place: int, spec: Spec) -> str:
    if isinstance(spec, NumberSpec):
        return f'const auto v{place} = m.read<{_NUMBERS[spec.kind]}>(m.tensor({place}));'
    return f'const auto& v{place} = m.tensor({place});'


def _step(step: Step, numbers: dict[Pair, int]) -> str:
    if isinstance(step, RunNetwork):
        given = ', '.join([f'v{place}' for place in step.inputs])
        results = f'results{step.outputs[0]}'
        number = numbers[step.network, step.parameters]
        return f'const auto {results} = m.results({number}, {{{given}}});' + ''.join(
            [
                f' const auto& v{place} = {results}[{number}];'
                for number, place in enumerate(step.outputs)
            ]
        )
    if isinstance(step, Calculate):
        function, first = _CALCULATED[step.op]
        operands = map(_operand, step.operands)
        given = ', '.join([f'm.at({_text(step.line)})', first, *operands])
        return f'const auto v{step.output} = {function}({given});'
    if isinstance(step, ReadNumber):
        noted = [f' m.note_rivals({_text(step.line)}, v{place});' for place in step.rivals]
        made = f'const auto v{step.output} = m.read<{_NUMBERS[step.kind]}>(v{step.input});'
        return made + ''.join(noted)
    if isinstance(step, GiveTensor):
        spec = _spec(TensorSpec((1,), step.dtype))
        return f'const auto v{step.output} = m.give({spec}, v{step.input});'
    return f'const auto v{step.output} = m.fill({step.constant});'


def _end(end: Any, graph: ProgramGraph) -> list[str]:
    if isinstance(end, Goto):
        return [f'm.go({_way(end, graph)});']
    if isinstance(end, Choose):
        return [
            f'm.choose(v{end.condition},',
            f'         {_way(end.then, graph)},',
            f'         {_way(end.other, graph)});',
        ]
    texts, values = [''], []
    places = iter(end.values)
    for part in _json(end.template):
        place = next(places) if part is LEAF else (part,)
        if part is not LEAF:
            texts[-1] += part
        elif isinstance(place, tuple):
            texts[-1] += json.dumps(_plain(place[0]))
        else:
            values.append(place)
            texts.append('')
    results = ', '.join([f'm.result(v{place})' for place in values])
    return [f'm.finish({{{", ".join(map(_text, texts))}}}, {{{results}}});']


def _way(to: Goto, graph: ProgramGraph) -> str:
    values = [
        f'm.give({_spec(TensorSpec((), np.dtype(NUMBERS[spec.kind]).name))}, {_operand(place)})'
        if isinstance(spec, NumberSpec)
        else f'v{place}'
        for place, spec in zip(to.values, graph.blocks[to.block].takes)
    ]
    return f'{{{to.block}, {{{", ".join(values)}}}}}'


def _json(template: tuple) -> Iterator[Any]:
    """Yield texts, and LEAF in place of each result."""
    kind = template[0]
    if template == LEAF:
        yield LEAF
    elif kind == 'static':
        yield json.dumps(_plain(template[2]))
    elif issubclass(kind, dict):
        for place, (key, item) in enumerate(zip(template[1], template[3:])):
            if not isinstance(key, str):
                raise BundleError(
                    f'a dict of the results has the key {key!r}, and the results of the C++ host '
                    'are JSON, where keys are texts: return a list or a tuple'
                )
            yield f'{", " if place else "{"}{json.dumps(key)}: '
            yield from _json(item)
        yield '}' if template[1] else '{}'
    else:
        yield '['
        for place, item in enumerate(template[1:]):
            yield ', ' if place else ''
            yield from _json(item)
        yield ']'


def _entry(number: int, block: ProgramBlock) -> str:
    line = _text(block.end.line) if isinstance(block.end, Choose) else 'nullptr'
    return f'{{block{number}, {_text(block.name)}, {line}}}'


def _network(network: Network, symbol: str, parameters: str) -> str:
    there = set(network.graph.symbol.list_inputs())
    names = [INPUT % place for place in range(len(network.inputs))]
    given = ', '.join([_text(name) if name in there else 'nullptr' for name in names])
    inputs, outputs = (', '.join(map(_spec, specs)) for specs in (network.inputs, network.outputs))
    batched = str(network.batched).lower()
    return f'{{{symbol}, {parameters}, {{{given}}}, {{{inputs}}}, {{{outputs}}}, {batched}}}'


def _file(bundle: BundleWriter, name: str) -> str:
    data = bundle.data(name)
    return f'{{{_text(name)}, {len(data)}, {zlib.crc32(data):#010x}}}'


def _spec(spec: Any) -> str:
    return f'{{{_dtype(spec.dtype)}, {{{", ".join(map(str, spec.shape))}}}}}'


def _dtype(name: str) -> str:
    if name not in _DTYPES:
        raise BundleError(f'the C++ host does not compute in {name}: cast to float32')
    return f'DType::k{name.capitalize()}'


# --- constants -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _operand(place: Any) -> str:
    if not isinstance(place, tuple):
        return f'v{place}'
    kind = type(_plain(place[0])).__name__
    return f'same<{_NUMBERS[kind]}>({_literal(place[0])})'


def _literal(value: Any) -> str:
    """Return a number as a C++ literal."""
    value = _plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if not -(2**63) < value < 2**63:
            raise BundleError(f'{value} has more than 64 bits: the C++ host does not take it')
        return f'INT64_C({value})'
    if math.isfinite(value):
        return repr(value)
    return 'NAN' if math.isnan(value) else 'HUGE_VAL' if value > 0 else '-HUGE_VAL'


def _text(text: str) -> str:
    """Return a text of any characters as a C++ literal."""
    plain = [
        chr(each) if 32 <= each < 127 and chr(each) not in '"\\' else f'\\{each:03o}'
        for each in text.encode('utf-8', 'surrogateescape')
    ]
    return f'"{"".join(plain)}"'
