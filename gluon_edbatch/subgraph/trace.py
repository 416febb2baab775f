"""Trace a HybridBlock's call, or one operator, as a Symbol."""

import inspect
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional, Union

import mxnet as mx
from mxnet import gluon

from gluon_edbatch_core.errors import ControlFlowError, RecordError, UnrecordableError

from ..mx.blocks import RECURRENT_LAYERS
from ..mx.symbols import symbol_function
from ..ops import op_of
from ..ops.numbers import Numbered
from .fingerprint import changed, fingerprint, has_hooks, has_operator_hook
from .ir import INPUT, Body, Subgraph, is_argument, operators_of
from .structure import LEAF, flatten, unflatten

WITHOUT_ARRAY = 'that is not given its array'
_SHAPED_BY_VALUES = {'_cond', '_while_loop'}  # operators of which MXNet infers no shapes
_CONTROL_FLOW = {
    function.__code__
    for function in (mx.sym.contrib.cond, mx.sym.contrib.while_loop, mx.sym.contrib.foreach)
}
_NAME_OF_BODY = '__subgraph_name__'  # counted by MXNet through the process


class StaticGraph(NamedTuple):
    """A static subgraph, with its parameters and the structure of its results; runs as one call."""

    name: str  # for messages, reports and `NodeType.stable_name`
    subgraph: Subgraph  # inputs are named `INPUT` % position
    parameters: dict[str, gluon.Parameter]  # variable name -> `Parameter`
    results: tuple  # template of the structure that the call returns (see `structure.flatten`)
    leaves: tuple[int, ...]  # for each leaf of `results`, which output of the subgraph it is
    constants: frozenset[str] = frozenset()  # inputs that no gradient is asked for
    # in NumPy mode, which outputs have no axes for users (see `numpy_mode`)
    scalars: tuple[bool, ...] = ()
    function: Any = None  # what runs, if it is Python code (see `function_signature`)

    @classmethod
    def of_symbol(cls, name: str, symbol: mx.sym.Symbol) -> 'StaticGraph':
        """Return the graph of a Symbol with one result and without parameters."""
        return cls(name, Subgraph(symbol), {}, LEAF, (0,))


def describe(block: gluon.Block) -> str:
    """Return class and name of a block, as users know it."""
    return f'{type(block).__name__}({block.name})'


def argument_names(block: gluon.Block, count: int) -> list[str]:
    """Return the names of a block's arguments in ``hybrid_forward``, after ``self`` and ``F``."""
    parameters = list(inspect.signature(type(block).hybrid_forward).parameters.values())[2:]
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ][:count]
    return names + [f'argument {number + 1}' for number in range(len(names), count)]


def trace_block(block: gluon.HybridBlock, template: tuple, inputs: int) -> StaticGraph:
    """Run a block's ``hybrid_forward`` once with Symbols.

    Raises
    ------
    ControlFlowError
        If the block has control flow of MXNet's whose shapes depend on values, or that MXNet
        cannot put into a graph or differentiate there.
    RecordError
        If the block cannot be traced, changes its own attributes, or comes out differently
        when traced again: one run for many samples would then not be what the user wrote.
    """
    _check_hooks(block, block)
    with _new_variables(block):
        results = _run(block, template, inputs)
        before = fingerprint(block)  # the first run may have filled what later ones only read
        again = _run(block, template, inputs)
    structure, positions, graph = _flattened(block, results)
    if not _is_static(graph):
        raise ControlFlowError(f'{describe(block)} has control flow that cannot be batched')
    differing = changed(before, fingerprint(block))
    if differing:
        raise RecordError(
            f'{describe(block)} changes {", ".join(differing)} while it runs. A HybridBlock runs '
            f'once for many samples: keep such state in the forward() of a plain Block '
            f'with AutoBatchMixin'
        )
    parameters = _parameters(block, graph)
    if _without_names(graph) != _without_names(_flattened(block, again)[2]):
        raise RecordError(
            f'{describe(block)} builds another graph each time it is called (does it draw random '
            f'numbers in Python, or keep an array from one call to the next, as a mask of '
            f'dropout?), so calls cannot run as one. Give it what differs as an argument, such as '
            f'a mask that the forward() of a plain Block makes once for a sample'
        )
    name = f'{type(block).__name__}({block.name})'  # saved policies have it: see `stable_name`
    return StaticGraph(name, graph, parameters, structure, positions)


def trace_operator(
    op: str, attrs: Sequence[tuple[str, str]], inputs: int, shared: Optional[dict[int, Any]] = None
) -> StaticGraph:
    """Trace one operator of MXNet's registry, applied to a number of arrays, and to shared ones:
    each a `SharedArray`, by its position among all arguments."""
    shared = shared or {}
    variables = [mx.sym.var(INPUT % i) for i in range(inputs)]
    for position, parameter in sorted(shared.items()):
        variables.insert(position, parameter.variable())
    try:
        symbol = symbol_function(op)(*variables, **dict(attrs))
    except (mx.base.MXNetError, TypeError) as error:  # TypeError: it takes fewer arrays
        if (
            not isinstance(error, TypeError)
            and 'symbolic.cc' not in str(error)
            and '<Symbol ' not in str(error)
        ):  # wrong attributes
            raise
        raise UnrecordableError(f'MXNet cannot put {op} into a graph: {error}') from None
    count, used = len(symbol.list_outputs()), symbol.list_inputs()
    parameters = {each.name: each for each in shared.values() if each.name in used}
    template = LEAF if count == 1 else (list,) + (LEAF,) * count
    return StaticGraph(op, Subgraph(symbol), parameters, template, tuple(range(count)))


Operator = tuple[str, tuple[tuple[str, str], ...], tuple[int, ...]]  # name, attributes, inputs


def trace_operators(name: str, operators: Sequence[Operator], inputs: int) -> StaticGraph:
    """Trace several operators on a number of arrays as one graph, whose result is that of the last
    one. An input of an operator is the position of an array, or ~i for the result of operator i."""
    arrays = [mx.sym.var(INPUT % i) for i in range(inputs)]
    results: list[mx.sym.Symbol] = []
    for op, attrs, read in operators:
        symbols = [arrays[place] if place >= 0 else results[~place] for place in read]
        results.append(symbol_function(op)(*symbols, **dict(attrs)))
    return StaticGraph.of_symbol(name, results[-1])


def trace_numbered(op: str, numbered: Numbered) -> StaticGraph:
    """Trace an operator whose number, an attribute, becomes its second input."""
    array, number = INPUT % 0, INPUT % 1
    symbol = numbered.symbol(mx.sym.var(array), mx.sym.var(number))
    return StaticGraph.of_symbol(op, symbol)._replace(constants=frozenset([number]))


@contextmanager
def _new_variables(block: gluon.HybridBlock) -> Iterator[None]:
    """Give all parameters new variables meanwhile, made outside any operator's body.

    A parameter keeps its first variable. MXNet 1.9.1 stores body, NumPy mode and dtype of that use
    in it, and builds another graph with it than with a new variable.
    """
    parameters = list(block.collect_params().values())
    before = [parameter._var for parameter in parameters]
    try:
        for parameter in parameters:
            parameter._var = None
            parameter.var()
        yield
    finally:
        for parameter, variable in zip(parameters, before):
            parameter._var = variable


def _check_hooks(block: gluon.Block, outermost: gluon.Block) -> None:
    """Raise if a block or one inside it has hooks that a trace would leave out."""
    inside = '' if block is outermost else f' inside {describe(outermost)}'
    if inside and has_hooks(block):
        raise RecordError(
            f'{describe(block)}{inside} has a forward hook, which would run once '
            f'for many samples; register hooks on the blocks that the per-sample model calls'
        )
    if has_operator_hook(block):
        raise RecordError(
            f'{describe(block)}{inside} has an operator hook (register_op_hook), which Gluon calls '
            f'for each operator of a hybridized block; there are none in a batching scope: call '
            f'the block outside of it, or hybridize(False)'
        )
    for child in block._children.values():
        _check_hooks(child, outermost)


def _run(block, template, inputs):
    variables = iter([_of_mode(mx.sym.var(INPUT % i)) for i in range(inputs)])
    arguments = [unflatten(argument, variables) for argument in template]
    if type(block) in RECURRENT_LAYERS and len(arguments) == 1:
        arguments.append(block.begin_state(0, func=mx.sym.zeros))
    try:
        return block.forward(*arguments)
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        if _CONTROL_FLOW.isdisjoint([frame.f_code for frame, _ in frames]):
            raise
        raise ControlFlowError(
            f'{describe(block)} has control flow that MXNet cannot put into a graph: {error}'
        ) from error


def _of_mode(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """Return a Symbol as blocks take it in MXNet's present mode."""
    return symbol.as_np_ndarray() if mx.util.is_np_array() else symbol


def _expand(results):
    """Return a Symbol with several outputs as a list, as Gluon does; others as they are."""
    if isinstance(results, mx.sym.Symbol):
        return list(results) if len(results.list_outputs()) > 1 else results
    if isinstance(results, (list, tuple)):
        items = [_expand(item) for item in results]
        return type(results)(*items) if hasattr(results, '_fields') else type(results)(items)
    if isinstance(results, dict):
        return type(results)((key, _expand(item)) for key, item in results.items())
    return results


def _flattened(block: gluon.Block, results: Any) -> tuple[tuple, tuple[int, ...], Subgraph]:
    """Return the structure of a block's results, which output of a graph each array in it is, and
    that graph. An input among the outputs is copied, as arenas need."""
    leaves: list[mx.sym.Symbol] = []
    structure = flatten(_expand(results), mx.sym.Symbol, leaves)
    if not leaves:
        raise RecordError(f'{describe(block)} returns no array')
    distinct = {id(leaf): leaf.as_nd_ndarray() for leaf in leaves}
    place = {key: position for position, key in enumerate(distinct)}
    outputs = [
        mx.sym.identity(output) if output.get_children() is None else output
        for output in distinct.values()
    ]
    positions = tuple([place[id(leaf)] for leaf in leaves])
    return structure, positions, Subgraph(mx.sym.Group(outputs))


def _without_names(graph: Union[Subgraph, Body]) -> tuple:
    """Return a graph without the names of operators and bodies, which differ between traces."""
    nodes = []
    for node in graph.nodes:
        attrs = {key: value for key, value in node.attrs.items() if key != _NAME_OF_BODY}
        named = node.is_variable and isinstance(graph, Subgraph)
        bodies = tuple(map(_without_names, node.bodies))
        nodes.append((node.op, node.name if named else '', attrs, node.inputs, bodies))
    return nodes, graph.heads


def _is_static(graph: Subgraph) -> bool:
    """Return whether MXNet infers the shapes of all operators, and has gradients of them.

    MXNet 1.9.1 has no gradient of a loop whose body writes to auxiliary states.
    """
    inside = set().union(*[operators_of(body) for node in graph.nodes for body in node.bodies])
    return operators_of(graph).isdisjoint(_SHAPED_BY_VALUES) and not any(
        [op_of(op).statistics for op in inside]
    )


def _parameters(block: gluon.Block, graph: Subgraph) -> dict[str, gluon.Parameter]:
    known: dict[str, gluon.Parameter] = {}
    for parameter in block.collect_params().values():
        if known.setdefault(parameter.name, parameter) is not parameter:
            raise RecordError(
                f'{describe(block)} holds two parameters named '
                f'{parameter.name!r}; give one of their blocks another prefix'
            )
    names = [name for name in graph.variables if not is_argument(name)]
    missing = [name for name in names if name not in known]
    attributes = {node.name: node.attrs for node in graph.nodes if node.is_variable}
    for name in missing:
        if '__dtype__' not in attributes[name]:  # no parameter's, but made by an operator
            raise RecordError(f'{describe(block)} has an operator {WITHOUT_ARRAY} {name}')
    if missing:
        raise RecordError(
            f'{describe(block)} uses {", ".join(missing)}, which is not among its '
            f'parameters; assign the block that owns it as an attribute'
        )
    return {name: known[name] for name in names}
