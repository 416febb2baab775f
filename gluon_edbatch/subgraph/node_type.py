"""Node types: calls that agree in everything that matters, and so may run as one batch."""

import itertools
import re
from enum import Enum
from functools import cached_property
from typing import Any, Dict, Hashable, List, NamedTuple, Optional, Sequence, Set, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon.parameter import DeferredInitializationError

from ..errors import RecordError, RowDependenceError, UnrecordableError
from ..ops import op_of
from ..ops.whole import NoRule
from .ir import Subgraph, infer_shape
from .lift import lift
from .mended import mended
from .options import CompileOptions
from .own_gradient import own_gradients
from .padding import Padding, padding_of
from .passes.horizontal import packs, pays
from .rowwise import RowwiseResult, Verdict, analyse
from .segments import by_segments
from .spec import ArenaKey, Spec, spec_of
from .trace import INPUT, StaticGraph, is_argument

_TRIAL_LENGTH = 3  # length of a ragged axis while shapes are inferred
_TRIAL_ROWS = 5  # rows of a batch, for passes
EAGER = 'makes a gradient of its own'  # in the reasons of types that are eager
_serial = itertools.count()


class Mode(NamedTuple):
    """The state of autograd in which a call was made."""

    recording: bool
    training: bool


class Kind(Enum):
    """How the rows of an argument come from values."""

    ROWS = 'rows'  # one value
    RAGGED = 'ragged'  # any number of values of one spec, stacked along axis 1
    FLAT = 'flat'  # one or more values with the same shape of rows, one after the other


class Argument(NamedTuple):
    """An array argument of a type.

    Attributes
    ----------
    arena : ArenaKey
        Where its rows live.
    kind : Kind
    differentiable : bool
        False if the subgraph uses it as an index only, or if it is of an integer type.
    rows : int
        How many it has per row of the call; 1 but for types of whole values.
    """

    arena: ArenaKey
    kind: Kind
    differentiable: bool
    rows: int = 1


class NodeType:
    """A type of node, with its static subgraph and what is known of it.

    Attributes
    ----------
    serial : int
        Counts types in the order in which the process met them; parts have that of the whole.
    name : str
        Block or operator, for people.
    graph : StaticGraph
    mode : Mode
    made_with : tuple
        What its calls have in common besides arrays and mode: template of the arguments and
        fingerprint of a block; name and attributes of an operator, and positions of arrays that
        its calls share.
    arguments : tuple of Argument
    outputs : tuple of Spec
        Of a call with ``rows`` rows.
    factors : tuple of int
        Rows of each output per row of the arguments.
    alone : bool
        Whether nodes must run one by one; `reason` says why.
    whole : bool
        Whether a call counts as one row, whatever its arguments' rows: the subgraph was lifted
        (see `lift`), as rows of these do depend on each other.
    eager : bool
        Whether they run as without a scope, on the user's own tape (see `own_tape`).
    neutral : bool
        Whether ragged arguments may be padded: calls of a type that is not neutral get types of
        their own by the lengths of these arguments.
    conditions : tuple of (int, int, bool)
        What a call must fulfil for that, too: the ragged argument at the first position has
        as many values as the one at the second, or (True) as the number there says.
    lengths : tuple of int or None
        Of the ragged arguments, for such types.
    splits : dict
        Its parts (see `hoisting.split` and `look_ups.look_ups`).
    tables : tuple of Parameter
        For a type that computes ids only: what is looked up with each of its outputs.
    native : NativeProgram or None
        For the native operators (see `native.run`), once it is known;
    not_native : str or None
        or why there is none.
    by_segments : Subgraph or None
        The subgraph for ragged arguments that are not padded (see `segments`).
    verified, verified_padding : bool
        Whether batched results were compared with a run alone, or need not be; the same for
        batches with padding.
    trial_shapes : dict
        Shapes of the inputs for some batch, from which passes take ranks.
    read_backward : list of bool
        For each parameter, whether the backward pass may read its values.
    options : CompileOptions
        What it is compiled with.
    parameter_dtypes : tuple of numpy.dtype
        Those of the parameters when it was made.
    changed_by : set of str
        The options that made a difference to what was compiled so far; parts have that of the
        whole. (What differs from evaluation to evaluation is found by `report.passes_of`.)
    """

    def __init__(
        self,
        graph: StaticGraph,
        mode: Mode,
        arguments: Tuple[Argument, ...],
        outputs: Tuple[Spec, ...],
        rows: int,
        verdict: RowwiseResult,
        ctx: mx.Context,
        shapes: Dict[str, Tuple[int, ...]],
        options: CompileOptions,
        lengths: Optional[Tuple[int, ...]] = None,
        whole: bool = False,
        eager: bool = False,
    ):
        self.serial = next(_serial)
        self.name = graph.name
        self.graph = graph
        self.mode = mode
        self.made_with: Tuple[Any, ...] = ()
        self.options = options
        self.changed_by: Set[str] = set()
        self.arguments = arguments
        self.outputs = outputs
        self.alone = verdict.verdict is not Verdict.PROVED
        self.reason = verdict.reason
        self.whole = whole
        self.eager = eager
        self.factors = tuple(verdict.factors) or tuple(1 for _ in outputs)
        self.rows = rows
        self.ctx = ctx
        self.trial_shapes = (
            shapes
            if self.alone
            else {
                name: (_TRIAL_ROWS * (shape[0] if whole else 1),) + shape[1:]
                for name, shape in shapes.items()
            }
        )
        self.parameters: List[gluon.Parameter] = list(graph.parameters.values())
        self.parameter_dtypes = self._dtypes_now()
        self.ragged = any(argument.kind is Kind.RAGGED for argument in arguments)
        self.random = any(op_of(op).noise for op in graph.subgraph.operators)
        padding = self._padding() if self.ragged and lengths is None else None
        self.neutral = not self.ragged or (padding is not None and padding.neutral)
        self.conditions = _conditions(arguments, padding) if padding is not None else ()
        self.lengths = lengths
        self.by_segments = self._by_segments()
        self.verified = self.alone or not graph.parameters
        self.verified_padding = self.verified and (not self.ragged or lengths is not None)
        tables = _used_only(graph, 'unread')
        self.read_backward = [name not in tables for name in graph.parameters]
        self.programs: Dict[tuple, Any] = {}
        self.shown = self._shown()
        self.splits: Dict[Hashable, Any] = {}
        self.tables: Tuple[gluon.Parameter, ...] = ()
        self.native: Any = None
        self.not_native: Optional[str] = None

    def part(
        self,
        subgraph: Subgraph,
        arguments: Tuple[Argument, ...],
        outputs: Sequence[tuple],
        shapes: Dict[str, Tuple[int, ...]],
        factors: List[int],
    ) -> 'NodeType':
        """A type for a part of this one's subgraph (see `hoisting` and `look_ups`).

        Parameters
        ----------
        outputs : sequence of (tuple of int, dtype)
            Shape for some number of rows, and dtype, of each output.
        shapes : dict
            Of the inputs.
        factors : list of int
            Rows of each output per row of the arguments.
        """
        names = set(subgraph.variables).union(*packs(subgraph).values())
        graph = self.graph._replace(
            subgraph=subgraph,
            parameters={
                name: parameter
                for name, parameter in self.graph.parameters.items()
                if name in names
            },
        )
        specs = tuple(
            spec_of(
                tuple(shape) if self.alone else (self.rows * factor,) + tuple(shape[1:]),
                dtype,
                self.ctx,
            )
            for (shape, dtype), factor in zip(outputs, factors)
        )
        verdict = Verdict.DEPENDENT if self.alone else Verdict.PROVED
        part = NodeType(
            graph,
            self.mode,
            arguments,
            specs,
            self.rows,
            RowwiseResult(verdict, self.reason, factors),
            self.ctx,
            {name: shape for name, shape in shapes.items() if name in names},
            self.options,
            self.lengths,
        )
        part.serial, part.shown, part.changed_by = self.serial, self.shown, self.changed_by
        return part

    def _padding(self) -> Padding:
        return padding_of(
            self.graph.subgraph,
            {
                INPUT % position
                for position, argument in enumerate(self.arguments)
                if argument.kind is Kind.RAGGED
            },
        )

    def _by_segments(self) -> Optional[Subgraph]:
        """Where it was measured to be faster, and all ragged arguments have one length."""
        ragged = [
            position
            for position, argument in enumerate(self.arguments)
            if argument.kind is Kind.RAGGED
        ]
        if (
            not self.options.segments
            or not ragged
            or self.lengths is not None
            or not self.neutral
            or self.alone
            or self.ctx.device_type != 'cpu'
            or any(number for _, _, number in self.conditions)
            or not one_group(ragged, self.conditions)
            or any(
                self.arguments[position].arena[1] not in (np.float32, np.float64)
                for position in ragged
            )
        ):
            return None
        return by_segments(
            self.graph.subgraph, self.trial_shapes, {INPUT % position for position in ragged}
        )

    def __repr__(self) -> str:
        return self.shown

    def _shown(self) -> str:
        shapes = ', '.join(
            'x'.join(map(str, ('k',) * (a.kind is Kind.RAGGED) + a.arena[0])) or '1'
            for a in self.arguments
        )
        lengths = '' if self.lengths is None else f' k={",".join(map(str, self.lengths))}'
        return f'{self.name}[{shapes}{lengths}]'

    @cached_property
    def stable_name(self) -> str:
        """The same for the same model in another process: without the counter in the model's name.

        MXNet numbers the blocks of a process that have no enclosing name scope; those inside one
        are numbered within it.
        """
        return re.sub(r'(?<=\()([a-z_]+?)\d+(?=[_)])', r'\1', repr(self), count=1)

    def fused(self, rows: int) -> bool:
        """Whether to run a batch of so many rows with horizontal fusion."""
        return self.options.horizontal and pays(rows, self._columns)

    @cached_property
    def _columns(self) -> int:
        """Of the widest result."""
        return max(spec.row_shape[-1] if spec.row_shape else 1 for spec in self.outputs)

    def fits(self) -> bool:
        """Whether the parameters have the dtypes that it was made for: the arguments of a block
        that takes ids do not tell that it was cast."""
        return self.parameter_dtypes == self._dtypes_now()

    def _dtypes_now(self) -> Tuple[np.dtype, ...]:
        return tuple([np.dtype(parameter.dtype) for parameter in self.parameters])

    def output_specs(self, rows: int) -> Tuple[Spec, ...]:
        """Specs of the outputs of a call with this many rows."""
        if rows == self.rows:
            return self.outputs
        return tuple(
            spec_of((rows * factor,) + spec.row_shape, spec.dtype, spec.ctx, self.eager)
            for factor, spec in zip(self.factors, self.outputs)
        )


def one_group(positions: Sequence[int], conditions) -> bool:
    """Whether the conditions tie all these ragged arguments to one length."""
    group = {positions[0]}
    for _ in positions:
        for one, other, _number in conditions:
            if group & {one, other}:
                group |= {one, other}
    return group.issuperset(positions)


def _conditions(arguments, padding: Padding) -> Tuple[Tuple[int, int, bool], ...]:
    position = {INPUT % i: i for i in range(len(arguments))}
    linked = [(position[one], position[other], False) for one, other in sorted(padding.linked)]
    return tuple(
        linked
        + [(position[source], position[name], True) for name, source in sorted(padding.lengths)]
    )


def make_type(
    graph: StaticGraph,
    mode: Mode,
    leaves: Sequence[Tuple[Spec, Kind]],
    ctx: mx.Context,
    options: CompileOptions,
    lengths: Optional[Tuple[int, ...]] = None,
    eager: bool = False,
) -> NodeType:
    """Infer shapes and dtypes, finish deferred initialisation, and find out what may batch.

    Parameters
    ----------
    graph : StaticGraph
    mode : Mode
    leaves : sequence of (Spec, Kind)
        The array arguments.
    ctx : mxnet.Context
        Where parameters are looked up.
    options : CompileOptions
    lengths : tuple of int, optional
        Lengths of the ragged arguments, for types whose calls all have the same.
    eager : bool, default False
        Whether calls run on the user's own tape even if nothing in the subgraph asks for it.

    Raises
    ------
    RecordError
        If shapes or dtypes do not fit, or a parameter is not initialised on `ctx`.
    UnrecordableError
        If an operator writes to an argument.
    RowDependenceError
        For BatchNorm in training mode, whose statistics would be taken over other samples.
    """
    shapes, dtypes = {}, {}
    ragged_lengths = itertools.repeat(_TRIAL_LENGTH) if lengths is None else iter(lengths)
    for position, (spec, kind) in enumerate(leaves):
        name = INPUT % position
        shapes[name] = (
            spec.shape
            if kind is not Kind.RAGGED
            else (spec.shape[:1] + (max(1, next(ragged_lengths)),) + spec.shape[1:])
        )
        dtypes[name] = spec.dtype
    used = set(graph.subgraph.variables)
    shapes = {name: shape for name, shape in shapes.items() if name in used}
    dtypes = {name: dtype for name, dtype in dtypes.items() if name in used}
    _refuse_writing(graph)
    why_eager = _why_eager(graph, mode, leaves, eager)
    outputs = _infer(graph, shapes, dtypes, ctx, bool(why_eager))
    trial = lengths is None and any(kind is Kind.RAGGED for _, kind in leaves)
    graph = graph._replace(subgraph=mended(graph.subgraph, shapes, trial))
    verdict = _verdict(graph, mode, leaves, shapes)
    lifted = None
    if verdict.verdict is not Verdict.PROVED and options.whole_values and not why_eager:
        lifted, missing = _lifted(graph, leaves, shapes)
        if missing:
            verdict = verdict._replace(
                reason=f'{verdict.reason}; and there is no rule for {missing} on whole values'
            )
    if verdict.verdict is Verdict.DEPENDENT and 'BatchNorm' in verdict.reason:
        raise RowDependenceError(
            f'{graph.name} cannot be batched: {verdict.reason}, so that a sample would see the '
            f'others of its minibatch. Use LayerNorm, or use_global_stats=True, or run it in '
            f'autograd.predict_mode()'
        )
    if why_eager:
        verdict = RowwiseResult(Verdict.DEPENDENT, why_eager, [])
    indices = _used_only(graph, 'indices')  # operators refuse gradients for these
    arguments = tuple(
        Argument(
            spec.arena,
            kind,
            np.issubdtype(spec.dtype, np.floating) and INPUT % position not in indices,
            1 if lifted is None else spec.rows,
        )
        for position, (spec, kind) in enumerate(leaves)
    )
    if lifted is None:
        return NodeType(
            graph,
            mode,
            arguments,
            outputs,
            leaves[0][0].rows,
            verdict,
            ctx,
            shapes,
            options,
            lengths,
            eager=bool(why_eager),
        )
    node_type = NodeType(
        graph._replace(subgraph=lifted),
        mode,
        arguments,
        outputs,
        1,
        RowwiseResult(Verdict.PROVED, '', [spec.rows for spec in outputs]),
        ctx,
        shapes,
        options,
        whole=True,
    )
    node_type.changed_by.add('whole_values')
    return node_type


def _refuse_writing(graph: StaticGraph) -> None:
    """Raise if an operator writes to an argument, as BatchNorm and optimizers do: a value is
    not written to, and its rows are nobody's array."""
    if any(map(is_argument, graph.subgraph.states)):
        raise UnrecordableError(
            f'{graph.name} writes to one of its arguments, which are to be parameters then'
        )


def _why_eager(
    graph: StaticGraph, mode: Mode, leaves: Sequence[Tuple[Spec, Kind]], eager: bool
) -> str:
    """Why calls are to run as without a scope; nothing if they need not."""
    heads = own_gradients(graph.subgraph) if mode.recording else ()
    if heads:
        return f'{", ".join(heads)} {EAGER}, so it belongs to its own call'
    if eager or any(spec.eager for spec, _ in leaves):
        return f'an argument comes from an operator that {EAGER}'
    return ''


def _lifted(
    graph: StaticGraph, leaves: Sequence[Tuple[Spec, Kind]], shapes: Dict[str, Tuple[int, ...]]
) -> Tuple[Optional[Subgraph], str]:
    """The subgraph for batches of whole values, or None and for which operator there is no rule."""
    if any(kind is not Kind.ROWS for _, kind in leaves) or any(
        getattr(parameter, '_grad_stype', 'default') != 'default'  # see `look_ups`
        for parameter in graph.parameters.values()
    ):
        return None, ''
    try:
        return lift(graph.subgraph, shapes), ''
    except NoRule as missing:
        return None, str(missing)


def _infer(graph, shapes, dtypes, ctx, eager):
    """Specs of the outputs; parameters whose shapes were unknown are initialised."""
    symbol, arguments = graph.subgraph.symbol, _described(shapes, dtypes)
    try:
        parameter_shapes, outputs, aux_shapes = infer_shape(symbol, shapes)
        parameter_types, types, _ = symbol.infer_type(**dtypes)
    except mx.base.MXNetError as error:
        raise RecordError(f'{graph.name} does not accept {arguments}: {_reason(error)}') from None
    if outputs is None or types is None:
        raise RecordError(
            f'{graph.name} does not accept {arguments}: shapes or dtypes cannot be inferred'
        )
    if any(not shape or 0 in shape for shape in outputs):
        raise UnrecordableError(f'{graph.name} has a result without rows for {arguments}')
    names = symbol.list_arguments() + symbol.list_auxiliary_states()
    inferred = dict(zip(names, list(parameter_shapes) + list(aux_shapes)))
    wanted = dict(zip(symbol.list_arguments(), parameter_types))
    for name, parameter in graph.parameters.items():
        _initialise(graph.name, parameter, inferred[name], ctx)
        if np.dtype(wanted.get(name, parameter.dtype)) != np.dtype(parameter.dtype):
            raise RecordError(
                f'{graph.name} got {arguments}, but its parameter {parameter.name} is '
                f'{np.dtype(parameter.dtype).name}; cast one of them'
            )
    return tuple(spec_of(shape, dtype, ctx, eager) for shape, dtype in zip(outputs, types))


def _initialise(owner, parameter, shape, ctx):
    try:
        found = parameter.data(ctx).shape  # an imported SymbolBlock's Parameter does not know it
    except DeferredInitializationError:
        parameter.shape = found = shape
        parameter._finish_deferred_init()
    except RuntimeError as error:
        raise RecordError(f'{owner} cannot run on {ctx}: {error}') from None
    if found != tuple(shape):
        raise RecordError(
            f'{owner}: parameter {parameter.name} has shape {found}, but '
            f'these arguments need {shape}'
        )


def _described(shapes, dtypes):
    return ', '.join(f'{np.dtype(dtypes[name]).name}{shape}' for name, shape in shapes.items())


def _reason(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if 'Error in operator' in line or 'Check failed' in line]
    return (wanted or lines or ['no reason given'])[-1][:300]


def _verdict(graph, mode, leaves, shapes) -> RowwiseResult:
    if len({spec.rows for spec, _ in leaves}) > 1:
        return RowwiseResult(Verdict.DEPENDENT, 'its arguments have different numbers of rows', [])
    row_shapes = {name: shape[1:] for name, shape in shapes.items()}
    if not row_shapes:
        return RowwiseResult(Verdict.DEPENDENT, 'its result does not depend on its inputs', [])
    return analyse(graph.subgraph, row_shapes, mode.training)


def _used_only(graph: StaticGraph, role: str) -> Set[str]:
    """Names of the variables that occur only as inputs of operators in this role (see `Op`)."""
    nodes = graph.subgraph.nodes
    found: Set[str] = set()
    other: Set[str] = set()
    for node in nodes:
        slots = getattr(op_of(node.op), role)
        for slot, entry in enumerate(node.inputs):
            (found if slot in slots else other).add(nodes[entry.node].name)
    return found - other
