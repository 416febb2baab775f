"""A HybridBlock's call, or one operator, as a Symbol."""

import inspect
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx
from mxnet import gluon

from ..errors import RecordError, UnrecordableError
from ..mx.arrays import dtype_number
from ..mx.symbols import symbol_function
from ..ops.numbers import Numbered
from .fingerprint import changed, fingerprint, has_hooks, has_operator_hook
from .ir import Subgraph
from .structure import LEAF, flatten, unflatten

INPUT = 'edb_input%d'
WITHOUT_ARRAY = 'that is not given its array'


def is_argument(name: str) -> bool:
    """Whether a variable of this name is an input, not a parameter."""
    return name.startswith(INPUT.split('%', maxsplit=1)[0])


class StaticGraph(NamedTuple):
    """A static subgraph: what runs as one call for a whole batch.

    Attributes
    ----------
    name : str
        For messages and reports.
    subgraph : Subgraph
        Inputs are named `INPUT` % position.
    parameters : dict
        Variable name -> `Parameter`.
    results : tuple
        Template of the structure that the call returns (see `structure.flatten`).
    leaves : tuple of int
        For each leaf of `results`, which output of the subgraph it is.
    constants : frozenset of str
        Inputs that no gradient is asked for.
    scalars : tuple of bool
        In NumPy mode, which outputs have no axes for users (see `numpy_mode`).
    """

    name: str
    subgraph: Subgraph
    parameters: Dict[str, gluon.Parameter]
    results: Tuple
    leaves: Tuple[int, ...]
    constants: FrozenSet[str] = frozenset()
    scalars: Tuple[bool, ...] = ()

    @classmethod
    def of_symbol(cls, name: str, symbol: mx.sym.Symbol) -> 'StaticGraph':
        """One result of inputs alone."""
        return cls(name, Subgraph(symbol), {}, LEAF, (0,))


def describe(block: gluon.Block) -> str:
    """Class and name of a block, as the user knows it."""
    return f'{type(block).__name__}({block.name})'


def argument_names(block: gluon.Block, count: int) -> List[str]:
    """As ``hybrid_forward`` calls its arguments, after ``self`` and ``F``."""
    parameters = list(inspect.signature(type(block).hybrid_forward).parameters.values())[2:]
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ][:count]
    return names + [f'argument {number + 1}' for number in range(len(names), count)]


def trace_block(block: gluon.HybridBlock, template: Tuple, inputs: int) -> StaticGraph:
    """Run a block's ``hybrid_forward`` once with Symbols.

    Raises
    ------
    RecordError
        If the block cannot be traced, changes its own attributes, or comes out differently
        when traced again: one run for many samples would then not be what the user wrote.
    """
    _check_hooks(block, block)
    _renew_variables(block)
    results = _run(block, template, inputs)
    before = fingerprint(block)  # the first run may have filled what later ones only read
    again = _run(block, template, inputs)
    differing = changed(before, fingerprint(block))
    if differing:
        raise RecordError(
            f'{describe(block)} changes {", ".join(differing)} while it runs. A HybridBlock runs '
            f'once for many samples: keep such state in the forward() of a plain Block '
            f'with AutoBatchMixin'
        )
    leaves: List[mx.sym.Symbol] = []
    structure = flatten(_expand(results), mx.sym.Symbol, leaves)
    if not leaves:
        raise RecordError(f'{describe(block)} returns no array')
    outputs: List[mx.sym.Symbol] = []
    positions = tuple(_position(leaf, outputs) for leaf in leaves)
    graph = _grouped(outputs)
    parameters = _parameters(block, graph)
    repeated: List[mx.sym.Symbol] = []
    flatten(_expand(again), mx.sym.Symbol, repeated)
    if _without_names(graph) != _without_names(_grouped(_unique(repeated))):
        raise RecordError(
            f'{describe(block)} builds another graph each time it is called (does it draw random '
            f'numbers in Python, or keep an array from one call to the next, as a mask of '
            f'dropout?), so calls cannot run as one. Give it what differs as an argument, such as '
            f'a mask that the forward() of a plain Block makes once for a sample'
        )
    return StaticGraph(describe(block), graph, parameters, structure, positions)


def trace_operator(
    op: str, attrs: Sequence[Tuple[str, str]], inputs: int, shared: Optional[Dict[int, Any]] = None
) -> StaticGraph:
    r"""One operator of MXNet's registry, with its attributes.

    Parameters
    ----------
    op : str
    attrs : sequence of (str, str)
    inputs : int
        To so many arrays it is applied,
    shared : dict, optional
        besides these `SharedArray`\ s, each at its position among all.
    """
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
    count = len(symbol.list_outputs())
    leaf = flatten(symbol, mx.sym.Symbol, [])
    template = leaf if count == 1 else (list,) + (leaf,) * count
    used = symbol.list_inputs()
    return StaticGraph(
        op,
        Subgraph(symbol),
        {parameter.name: parameter for parameter in shared.values() if parameter.name in used},
        template,
        tuple(range(count)),
    )


def trace_numbered(op: str, numbered: Numbered) -> StaticGraph:
    """The same of an operator whose number is its second input."""
    array, number = INPUT % 0, INPUT % 1
    symbol = numbered.symbol(mx.sym.var(array), mx.sym.var(number))
    leaf = flatten(symbol, mx.sym.Symbol, [])
    return StaticGraph(op, Subgraph(symbol), {}, leaf, (0,), frozenset([number]))


def _renew_variables(block: gluon.HybridBlock) -> None:
    """After ``cast``, MXNet 1.9.1 keeps a parameter's variable, which names the old dtype; and
    after a change of NumPy mode that of the other one."""
    kind = type(_of_mode(mx.sym.var('any')))
    for parameter in block.collect_params().values():
        if parameter._var is not None and (
            parameter._var.attr('__dtype__') != str(dtype_number(parameter.dtype))
            or type(parameter._var) is not kind
        ):
            parameter._var = None


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
    return block.forward(*[unflatten(argument, variables) for argument in template])


def _of_mode(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """It as blocks take it in MXNet's present mode."""
    return symbol.as_np_ndarray() if mx.util.is_np_array() else symbol


def _expand(results):
    """Symbols with several outputs count as lists, as they do for Gluon."""
    if isinstance(results, mx.sym.Symbol):
        return list(results) if len(results.list_outputs()) > 1 else results
    if isinstance(results, (list, tuple)):
        items = [_expand(item) for item in results]
        return type(results)(*items) if hasattr(results, '_fields') else type(results)(items)
    if isinstance(results, dict):
        return type(results)((key, _expand(item)) for key, item in results.items())
    return results


def _position(leaf, outputs):
    for position, output in enumerate(outputs):
        if output is leaf:
            return position
    outputs.append(leaf)
    return len(outputs) - 1


def _unique(leaves):
    outputs: List[mx.sym.Symbol] = []
    for leaf in leaves:
        _position(leaf, outputs)
    return outputs


def _grouped(outputs: Sequence[mx.sym.Symbol]) -> Subgraph:
    """An input that is handed through must be written to the arena like any result."""
    return Subgraph(
        mx.sym.Group(
            [
                mx.sym.identity(output) if output.get_children() is None else output
                for output in [output.as_nd_ndarray() for output in outputs]
            ]
        )
    )


def _without_names(graph: Subgraph) -> Tuple:
    """The graph without the names of its operators, which differ between traces."""
    return [
        node if node.is_variable else (node._replace(name='', bodies=()), len(node.bodies))
        for node in graph.nodes
    ], graph.heads


def _parameters(block: gluon.Block, graph: Subgraph) -> Dict[str, gluon.Parameter]:
    known: Dict[str, gluon.Parameter] = {}
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
