"""Batch signatures: calls of one `NodeType` may run as one batch.

Such calls agree in block and structure of arguments, or in operator, attributes and shared arrays.
They agree in the mode of autograd, the compile options, and shape of rows, dtype, context and kind
of each argument. They agree in numbers of rows where rows depend on each other, and in lengths
where padding could change results. `record.forms` makes the keys.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from types import MappingProxyType
from typing import Any, Callable, ClassVar, NamedTuple, Optional, Union

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon.parameter import DeferredInitializationError

from gluon_edbatch_core.errors import RecordError, RowDependenceError, UnrecordableError
from gluon_edbatch_core.plan.call_type import Argument, CallType, Kind

from ..mx.symbols import infer_shape, infer_type
from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.whole import NoRule
from .additions import kind_of_addition
from .elements import Elements, elements
from .empty import WithoutValues, without_values
from .ir import Subgraph, operators_of
from .lift import lift
from .numpy_mode import in_terms_of_nd
from .options import CompileOptions
from .own_gradient import own_gradients
from .padding_proof import Along, Padding, all_linked, padding_of
from .passes.horizontal import most_rows, packs
from .rowwise import RowwiseResult, Verdict, analyse
from .segments import by_segments
from .sentences import whole_sentences
from .spec import Spec, spec_of
from .structure import unflatten
from .trace import INPUT, StaticGraph, is_argument
from .workarounds import mended

_TRIAL_LENGTH = 3  # length of a ragged axis while shapes are inferred
_TRIAL_ROWS = 5  # rows of a batch, for passes
EAGER = 'makes a gradient of its own'  # in the reasons of types that are eager
NO_LENGTHS: Mapping[int, int] = MappingProxyType({})
_serial = itertools.count()


class Mode(NamedTuple):
    """The state of MXNet at a call: autograd's modes, and whether arrays are NumPy's."""

    recording: bool
    training: bool
    numpy: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class NodeType(CallType):
    """A batch signature: a static subgraph, and what is known about it. Types compare by identity.

    `compiled` holds what was compiled for a type; only `execute.executable` uses it."""

    # counts types in the order in which the process met them; parts have that of the whole
    serial: int
    shapes: str  # of the whole type's arguments, as `stable_name` has them
    graph: StaticGraph
    # what `graph` was made of: the calls' own, for analyses of other shapes of the arguments
    traced: StaticGraph
    mode: Mode
    # what its calls have in common besides arrays and mode: template of the arguments and
    # fingerprint of a block; name and attributes of an operator, and positions of arrays that its
    # calls share
    made_with: tuple[Any, ...]
    arguments: tuple[Argument, ...]
    outputs: tuple[Spec, ...]  # of a call with ``rows`` rows
    factors: tuple[int, ...]  # rows of each output per row of the arguments
    rows: int
    ctx: mx.Context
    options: CompileOptions  # what it is compiled with
    alone: bool  # whether nodes must run one by one; `reason` says why
    reason: str
    # shapes of the inputs for some batch, from which passes take ranks
    trial_shapes: dict[str, Shape]
    parameter_dtypes: tuple[np.dtype, ...]  # those of the parameters when it was made
    # of the ragged arguments, for types of which all calls have the same
    lengths: Optional[tuple[int, ...]] = None
    # whether a call counts as one row, whatever its arguments' rows: the subgraph was lifted (see
    # `lift`), as rows of these do depend on each other
    whole: bool = False
    # whether they run as without a scope, on the user's own tape (see `execute.eager`)
    eager: bool = False
    # for a type that computes ids only: what is looked up with each of its outputs
    tables: tuple[gluon.Parameter, ...] = ()
    # of a type with packed arguments: the axes of each output that have lengths, and so as many
    # rows; of a graph for one call, the axes of the packed arguments, too
    packed: tuple[tuple['Along', ...], ...] = ()
    axes: tuple[tuple[int, int], ...] = ()
    compiled: ClassVar[Any] = None

    def part(
        self,
        subgraph: Subgraph,
        arguments: tuple[Argument, ...],
        outputs: Sequence[tuple[Shape, Any]],
        shapes: dict[str, Shape],
        factors: Sequence[int],
        tables: tuple[gluon.Parameter, ...] = (),
    ) -> 'NodeType':
        """Return a type for a part of this one's subgraph (see `split`).

        Parameters
        ----------
        outputs : sequence of (tuple of int, dtype)
            Shape for some number of rows, and dtype, of each output.
        shapes : dict
            Shapes of the inputs.
        factors : sequence of int
            Rows of each output per row of the arguments.
        """
        names = set(subgraph.variables).union(*packs(subgraph).values())
        parameters = {name: value for name, value in self.graph.parameters.items() if name in names}
        specs = tuple(
            spec_of(
                tuple(shape) if self.alone else (self.rows * factor,) + tuple(shape[1:]),
                dtype,
                self.ctx,
            )
            for (shape, dtype), factor in zip(outputs, factors)
        )
        return replace(
            self,
            graph=self.graph._replace(subgraph=subgraph, parameters=parameters),
            arguments=arguments,
            outputs=specs,
            factors=tuple(factors),
            trial_shapes={name: shape for name, shape in shapes.items() if name in names},
            parameter_dtypes=_dtypes_of(parameters.values()),
            tables=tables,
            packed=self.packed if any(each.kind is Kind.PACKED for each in arguments) else (),
        )

    @property
    def name(self) -> str:
        """Name of the block or operator, for users."""
        return self.graph.name

    def __repr__(self) -> str:
        return f'{self.name}{self.shapes}'

    @property
    def why_one_by_one(self) -> str:
        """Why calls run one by one, even within a batch; empty if they do not."""
        if self.graph.function is not None:
            return self.reason or self.graph.function.apart
        return self.reason if self.alone else ''

    @cached_property
    def parameters(self) -> list[gluon.Parameter]:
        """The parameters, in the order of the graph's."""
        return list(self.graph.parameters.values())

    @cached_property
    def nested(self) -> Any:
        """The structure of a call's results, with the number of an output in place of each."""
        return unflatten(self.graph.results, iter(self.graph.leaves))

    @property
    def is_taped(self) -> bool:
        """Whether autograd records its calls."""
        return self.mode.recording

    @cached_property
    def random(self) -> bool:
        """Whether the type may draw random numbers."""
        return any(op_of(op).noise for op in operators_of(self.graph.subgraph))

    @cached_property
    def has_loops(self) -> bool:
        """Whether the subgraph has MXNet's loops or conditions."""
        return any(node.bodies for node in self.graph.subgraph.nodes)

    @cached_property
    def read_backward(self) -> list[bool]:
        """For each parameter, whether the backward pass may read its values."""
        unread = used_only(self.graph, 'unread')
        return [name not in unread for name in self.graph.parameters]

    @cached_property
    def _padding(self) -> Padding:
        if not self.ragged or self.packed or self.lengths is not None:
            return Padding(self.lengths is None)
        return self._analysed_padding()

    def _analysed_padding(self) -> Padding:
        if any(map(is_sparse, self.parameters)):
            return Padding(False, 'rows of tables with sparse gradients are looked up by shape')
        padding = self._padding_proof(of_results=False)
        if padding.shortest:
            return Padding(False, 'a window may be longer than there are values')
        return padding

    def _padding_proof(self, of_results: bool) -> Padding:
        axes, graph = dict.fromkeys(self._ragged_inputs, 1), self.graph.subgraph
        axes.update({INPUT % position: axis for position, axis in self.axes})
        dtypes = {INPUT % place: each.arena.dtype for place, each in enumerate(self.arguments)}
        padding = padding_of(graph, self.trial_shapes, axes, of_results, dtypes=dtypes)
        return padding.by_position(list(dtypes))

    @property
    def _ragged_inputs(self) -> list[str]:
        return [INPUT % position for position in self.ragged]

    @cached_property
    def elements(self) -> Optional[Elements]:
        """The parts of a call for all values and for each value; None if it cannot be split."""
        if (
            self.neutral
            or self.lengths is not None
            or self.alone
            or self.mode.numpy  # shapes are not known to it yet
            or any(map(is_sparse, self.parameters))
        ):
            return None
        found = elements(self.graph, self.trial_shapes, self._ragged_inputs, len(self.arguments))
        drawn_twice = found is not None and found.whole is not None and self.random
        return None if drawn_twice else found

    @cached_property
    def _without_values(self) -> dict[frozenset[int], Union[WithoutValues, str]]:
        return {}

    def without_values(self, empty: frozenset[int]) -> WithoutValues:
        """Return the subgraph for calls whose ragged arguments at these positions have no values.
        Raise RecordError if an operator has no result then."""
        known = self._without_values.get(empty)
        if known is None:
            axes = {INPUT % position: 1 for position in empty}
            try:
                known = without_values(self.graph.subgraph, self.trial_shapes, axes)
            except RecordError as error:
                known = str(error)
            self._without_values[empty] = known
        if isinstance(known, str):
            raise RecordError(f'{self.name}: {known}')
        return known

    @cached_property
    def ragged_axes(self) -> Optional[tuple[Along, ...]]:
        """The axes along which the only result is ragged. None if padding is not proved to stay
        apart, or noise is drawn."""
        if self.random or self.mode.numpy or len(self.outputs) > 1:
            return None
        padding = self._padding_proof(of_results=True)
        if not padding.neutral or padding.shortest:
            return None
        (along,) = padding.results
        return None if [each.axis for each in along] in ([], [1]) else along

    @cached_property
    def layout(self) -> Optional[Padding]:
        """How calls with packed arguments run on padded ones, (calls, length, ...), as MXNet's
        operators need them; None if padding is not proved to stay apart."""
        padding = self._padding_proof(of_results=True)
        return padding if padding.neutral and padding.results == self.packed else None

    def why_by_length(self) -> str:
        """Why only calls with equal lengths are batched; empty if padding is proved harmless."""
        return self._analysed_padding().reason

    @cached_property
    def neutral(self) -> bool:
        """Whether ragged arguments may be padded; otherwise their lengths belong to the type."""
        return self._padding.neutral

    @property
    def masked(self) -> Optional[Subgraph]:
        """The subgraph for padded arguments, if zeros alone would change results (see
        `padding_proof`). A call without values has one row of zeros, and the length 0."""
        return self._padding.masked

    @cached_property
    def linked(self) -> tuple[tuple[int, int], ...]:
        """Pairs of ragged arguments that must have equally many values in a call to be padded."""
        return tuple(sorted(self._padding.linked))

    @cached_property
    def has_one_length(self) -> bool:
        """Whether all ragged arguments of a call have one length."""
        # packed arguments without a layout are for native operators only, which need that
        padding = self.layout if self.packed else self._padding
        return padding is None or all_linked(self.ragged, padding.linked)

    @cached_property
    def by_segments(self) -> Optional[Subgraph]:
        """The subgraph for ragged arguments without padding (see `segments`), if that is faster and
        all ragged arguments have one length; else None."""
        if (
            not (self.options.segments and self.ragged and self.neutral and self.has_one_length)
            or self.packed
            or self.lengths is not None
            or self.alone
            or self.ctx.device_type != 'cpu'
            or any(
                self.arguments[position].arena[1] not in (np.float32, np.float64)
                for position in self.ragged
            )
        ):
            return None
        return by_segments(self.graph.subgraph, self.trial_shapes, set(self._ragged_inputs))

    @cached_property
    def joins_rows(self) -> bool:
        """Whether calls are MXNet's concatenations along axis 0."""
        return self.made_with[0] == 'Concat' and ('dim', '0') in self.made_with[1]

    @cached_property
    def addition(self) -> int:
        """Number shared by types whose calls may be parts of one sum (see `kind_of_addition`)."""
        if (
            not self.options.additions
            or self.parameters
            or self.alone
            or self.packed
            or (self.whole and not self.joins_rows)
        ):
            return 0
        arenas = [
            argument.arena if argument.kind is Kind.ROWS else None for argument in self.arguments
        ]
        own = self.mode, self.options, [spec.arena for spec in self.outputs], self.joins_rows
        return kind_of_addition(self.graph.subgraph, arenas, *own)

    @cached_property
    def stable_name(self) -> str:
        """The type's name in saved policies, which must not change: `__repr__` is for people.

        ``Mean(net_mean0)[3, kx4 k=2]`` has the block's class and name, or the operator, the
        shape of a row of each argument, with ``k`` for any number of values, and lengths that all
        calls share. A policy outlives other dtypes and modes, and another
        place of the class, so they are left out. The counter of the model is left out, too: MXNet
        numbers blocks without an enclosing name scope through the whole process.
        """
        name = re.sub(r'(?<=\()([a-z_]+?)\d+(?=[_)])', r'\1', self.name, count=1)
        return f'{name}{self.shapes}'

    @cached_property
    def fused_up_to(self) -> int:
        """Most rows of a batch that runs with horizontal fusion."""
        columns = max(spec.row_shape[-1] if spec.row_shape else 1 for spec in self.outputs)
        return most_rows(columns) if self.options.horizontal else 0

    def fits(self) -> bool:
        """Return whether the parameters still have the dtypes that the type was made for."""
        given = [parameter.dtype for parameter in self.parameters]
        if given != self.__dict__.get('_fitting'):  # asked in each scope, and most often the same
            if self.parameter_dtypes != _dtypes_of(self.parameters):
                return False
            self.__dict__['_fitting'] = given
        return True

    def output_specs(self, rows: int, lengths: Mapping[int, int] = NO_LENGTHS) -> tuple[Spec, ...]:
        """Return the specs of a call's outputs for a number of rows; packed ones for the lengths of
        the arguments, by position."""
        if self.packed:
            return tuple(
                spec.of_rows(prod([each.length(lengths) for each in along])) if along else spec
                for spec, along in zip(self.outputs, self.packed)
            )
        if rows == self.rows:
            return self.outputs
        return tuple(
            [spec.of_rows(rows * factor) for factor, spec in zip(self.factors, self.outputs)]
        )

    def shapes_of_one(self, lengths: Mapping[int, int]) -> list[Shape]:
        """Return the shapes of the arguments of a call as users see them, for the lengths of
        packed ones, by position, of a type with `axes`."""
        axes = dict(self.axes)
        return [
            _of_sentence(each.arena.row_shape, axes[position], lengths[position])
            if position in axes
            else (each.rows, *each.arena.row_shape)
            for position, each in enumerate(self.arguments)
        ]


def is_sparse(parameter: gluon.Parameter) -> bool:
    """Return whether a parameter's gradient has only the rows that were looked up."""
    return getattr(parameter, '_grad_stype', 'default') != 'default'


def _dtypes_of(parameters: Iterable[gluon.Parameter]) -> tuple[np.dtype, ...]:
    return tuple([np.dtype(parameter.dtype) for parameter in parameters])


def _shapes(arguments: Sequence[Argument], lengths: Optional[tuple[int, ...]]) -> str:
    shapes = ', '.join(
        'x'.join(map(str, ('k',) * (a.kind in (Kind.RAGGED, Kind.PACKED)) + a.arena[0])) or '1'
        for a in arguments
    )
    known = '' if lengths is None else f' k={",".join(map(str, lengths))}'
    return f'[{shapes}{known}]'


def _of_sentence(row_shape: Shape, axis: int, length: int) -> Shape:
    """Return the shape that users see of a sentence with its positions along an axis."""
    if axis == 0:
        return (length, *row_shape)
    return (1, *row_shape[: axis - 1], length, *row_shape[axis - 1 :])


def make_type(
    graph: StaticGraph,
    mode: Mode,
    leaves: Sequence[tuple[Spec, Kind]],
    ctx: mx.Context,
    options: CompileOptions,
    made_with: tuple[Any, ...],
    lengths: Optional[tuple[int, ...]] = None,
    eager: bool = False,
    scalars: tuple[int, ...] = (),
    packed: tuple[tuple[Along, ...], ...] = (),
    axes: tuple[tuple[int, int], ...] = (),
    shortest: int = 1,
) -> NodeType:
    """Infer shapes and dtypes, finish deferred initialisation, and find out what may batch.

    Parameters
    ----------
    graph, mode, ctx, options, made_with, lengths, packed, axes
        See `NodeType`.
    leaves : sequence of (Spec, Kind)
        The array arguments.
    shortest : int, default 1
        The least length of packed arguments.
    eager : bool, default False
        Whether calls run on the user's own tape even if nothing in the subgraph asks for it.
    scalars : tuple of int
        Array arguments that have no axes for users, in NumPy mode.

    Raises
    ------
    RecordError
        If shapes or dtypes do not fit, or a parameter is not initialised on `ctx`.
    NoRule
        If an operator has no rule for whole sentences, of a type with `axes`.
    UnrecordableError
        If an operator writes to an argument.
    RowDependenceError
        For BatchNorm in training mode, whose statistics would be taken over other samples.
    """
    made = partial(
        NodeType,
        serial=next(_serial),
        traced=graph,
        mode=mode,
        made_with=made_with,
        ctx=ctx,
        options=options,
    )
    if graph.function is not None:
        return _type_of_function(made, graph, leaves, ctx)
    shapes, dtypes = _of_inputs(graph.subgraph, leaves, lengths, shortest, dict(axes))
    if mode.numpy and not graph.scalars:
        shown = {**shapes, **{INPUT % position: () for position in scalars}}
        try:
            graph = in_terms_of_nd(graph, shown, dtypes)
        except mx.base.MXNetError as error:
            raise _not_accepted(graph, _described(shown, dtypes), _reason(error)) from None
    if lengths is not None and 0 in lengths:
        none = {INPUT % position: 1 for position in _without_rows(leaves, lengths)}
        emptied = without_values(graph.subgraph, shapes, none)
        if any(emptied.axes):
            raise RecordError(f'{graph.name} has one result without elements, and others')
        graph = graph._replace(subgraph=emptied.graph)
    if any(map(is_argument, graph.subgraph.states)):  # as BatchNorm and optimizers write
        raise UnrecordableError(
            f'{graph.name} writes to one of its arguments, which are to be parameters then'
        )
    why_eager = _why_eager(graph, mode, leaves, eager)
    trial = lengths is None and any(kind is Kind.RAGGED for _, kind in leaves)
    outputs = _infer(graph, shapes, dtypes, ctx, bool(why_eager), trial)
    if not axes and any(along and spec.rows > 1 for spec, along in zip(outputs, packed)):
        raise RecordError(f'{graph.name} has several rows for each position of a sentence')
    graph = graph._replace(subgraph=mended(graph.subgraph, shapes, trial))
    lifted = None
    if axes:  # sentences are lifted for each length
        of_one = [shapes.get(INPUT % position, ()) for position in range(len(leaves))]
        along = [[each.axis for each in own] for own in packed]
        whole_sentences(graph.subgraph, of_one, dict(axes), along)
        verdict = RowwiseResult(Verdict.PROVED, '', [])
    else:
        verdict = _verdict(graph, mode, leaves, shapes)
    if verdict.verdict is not Verdict.PROVED and options.whole_values and not why_eager:
        lifted, missing = _lifted(graph, leaves, shapes, trial)
        if missing:
            verdict = verdict._replace(
                reason=f'{verdict.reason}; and there is no rule for {missing} on whole values'
            )
    if verdict.verdict is Verdict.STATISTICS:
        raise RowDependenceError(
            f'{graph.name} cannot be batched: {verdict.reason}, so that a sample would see the '
            f'others of its minibatch. Use LayerNorm, or use_global_stats=True, or run it in '
            f'autograd.predict_mode()'
        )
    if why_eager:
        verdict = RowwiseResult(Verdict.DEPENDENT, why_eager, [])
    # operators refuse gradients for indices
    without_gradient = used_only(graph, 'indices') | graph.constants
    arguments = tuple(
        Argument(
            spec.arena,
            kind,
            np.issubdtype(spec.dtype, np.floating) and INPUT % position not in without_gradient,
            1 if kind is Kind.PACKED or not (lifted or axes) else spec.rows,
        )
        for position, (spec, kind) in enumerate(leaves)
    )
    alone = verdict.verdict is not Verdict.PROVED and lifted is None
    factors = [spec.rows for spec in outputs] if lifted or axes else verdict.factors
    if not (alone or axes):
        shapes = {
            name: (_TRIAL_ROWS * (shape[0] if lifted else 1),) + shape[1:]
            for name, shape in shapes.items()
        }
    return made(
        shapes=_shapes(arguments, lengths),
        graph=graph._replace(subgraph=lifted) if lifted else graph,
        arguments=arguments,
        outputs=tuple(
            spec if not along else _of_rows(spec, [each.axis for each in along])
            for spec, along in itertools.zip_longest(outputs, packed)
        ),
        factors=tuple(factors) or (1,) * len(outputs),
        rows=1 if lifted or packed else leaves[0][0].rows,
        alone=alone,
        reason='' if lifted else verdict.reason,
        trial_shapes=shapes,
        parameter_dtypes=_dtypes_of(graph.parameters.values()),
        lengths=lengths,
        whole=bool(lifted or axes),
        eager=bool(why_eager),
        packed=packed,
        axes=axes,
    )


def _of_rows(spec: Spec, axes: Sequence[int]) -> Spec:
    """Return the spec of a result of packed sentences as rows, one for each position along axes."""
    others = [size for axis, size in enumerate(spec.shape) if axis and axis not in axes]
    return spec_of((prod([spec.shape[axis] for axis in axes]), *others), spec.dtype, spec.ctx)


def _without_rows(leaves: Sequence[tuple[Spec, Kind]], lengths: tuple[int, ...]) -> list[int]:
    """Return the positions of the ragged arguments that have no values."""
    ragged = [position for position, (_, kind) in enumerate(leaves) if kind is Kind.RAGGED]
    return [position for position, length in zip(ragged, lengths) if not length]


def _of_inputs(
    graph: Subgraph,
    leaves: Sequence[tuple[Spec, Kind]],
    lengths: Optional[tuple[int, ...]],
    shortest: int,
    axes: Mapping[int, int],
) -> tuple[dict[str, Shape], dict[str, Any]]:
    """Return shapes and dtypes of the inputs that a graph has."""
    shapes, dtypes = {}, {}
    ragged_lengths = itertools.repeat(_TRIAL_LENGTH) if lengths is None else iter(lengths)
    for position, (spec, kind) in enumerate(leaves):
        name = INPUT % position
        shapes[name], dtypes[name] = spec.shape, spec.dtype
        if kind is Kind.RAGGED:
            shapes[name] = spec.shape[:1] + (max(1, next(ragged_lengths)),) + spec.shape[1:]
        elif kind is Kind.PACKED:
            length = max(_TRIAL_LENGTH, shortest)
            shapes[name] = _of_sentence(spec.shape[1:], axes.get(position, 1), length)
    return graph.known(shapes), graph.known(dtypes)


def _type_of_function(
    made: Callable[..., NodeType],
    graph: StaticGraph,
    leaves: Sequence[tuple[Spec, Kind]],
    ctx: mx.Context,
) -> NodeType:
    """Make the type of an `autograd.Function`'s calls, whose results are known."""
    arguments = tuple(
        Argument(spec.arena, kind, np.issubdtype(spec.dtype, np.floating)) for spec, kind in leaves
    )
    outputs = tuple([spec_of(shape, dtype, ctx) for shape, dtype in graph.function.results.specs])
    rows, reason = leaves[0][0].rows, graph.function.apart
    if any(spec.rows != rows for spec, _ in leaves):
        reason = 'its arguments have different numbers of rows'
    elif any(spec.rows % rows for spec in outputs):
        reason = 'a result has other rows than the arguments'
    return made(
        shapes=_shapes(arguments, None),
        graph=graph,
        arguments=arguments,
        outputs=outputs,
        factors=(1,) * len(outputs) if reason else tuple([spec.rows // rows for spec in outputs]),
        rows=rows,
        alone=bool(reason),
        reason=reason,
        trial_shapes={INPUT % position: spec.shape for position, (spec, _) in enumerate(leaves)},
        parameter_dtypes=(),
    )


def _why_eager(
    graph: StaticGraph, mode: Mode, leaves: Sequence[tuple[Spec, Kind]], eager: bool
) -> str:
    """Return why calls have to run eagerly; empty if they need not."""
    heads = own_gradients(graph.subgraph) if mode.recording else ()
    if heads:
        return f'{", ".join(heads)} {EAGER}, so it belongs to its own call'
    if eager or any(spec.eager for spec, _ in leaves):
        return f'an argument comes from an operator that {EAGER}'
    return ''


def _lifted(
    graph: StaticGraph,
    leaves: Sequence[tuple[Spec, Kind]],
    shapes: dict[str, tuple[int, ...]],
    trial: bool,
) -> tuple[Optional[Subgraph], str]:
    """Return the subgraph for batches with an extra axis, or None and the operator without a rule.

    Ragged values of one row each are one dense value if all calls have as many as in `shapes`. With
    `trial`, they may have other numbers.
    """
    if (
        trial
        or any(
            kind is not Kind.ROWS and (kind, spec.rows) != (Kind.RAGGED, 1) for spec, kind in leaves
        )
        or any(map(is_sparse, graph.parameters.values()))  # see `look_ups`
    ):
        return None, ''
    try:
        return lift(graph.subgraph, shapes), ''
    except NoRule as missing:
        return None, str(missing)


def _infer(graph, shapes, dtypes, ctx, eager, trial):
    """Infer the specs of the outputs; initialise parameters whose shapes were unknown."""
    symbol, arguments = graph.subgraph.symbol, _described(shapes, dtypes)
    if trial:
        arguments += (
            f' (ragged values are tried as {_TRIAL_LENGTH}, however many they are: what has one '
            f'for each of them, such as labels, is to be ragged, too)'
        )
    try:
        parameter_shapes, outputs, aux_shapes = infer_shape(symbol, shapes)
        parameter_types, types, _ = infer_type(symbol, dtypes)
    except mx.base.MXNetError as error:
        raise _not_accepted(graph, arguments, _reason(error)) from None
    if outputs is None or types is None:
        raise _not_accepted(graph, arguments, 'shapes or dtypes cannot be inferred')
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


def _not_accepted(graph: StaticGraph, arguments: str, why: str) -> RecordError:
    return RecordError(f'{graph.name} does not accept {arguments}: {why}')


def _described(shapes, dtypes):
    return ', '.join(f'{np.dtype(dtypes[name]).name}{shape}' for name, shape in shapes.items())


def _reason(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if 'Error in operator' in line or 'Check failed' in line]
    return (wanted or lines or ['no reason given'])[-1][:300]


def _verdict(graph, mode, leaves, shapes) -> RowwiseResult:
    if len({1 if kind is Kind.PACKED else spec.rows for spec, kind in leaves}) > 1:
        return RowwiseResult(Verdict.DEPENDENT, 'its arguments have different numbers of rows', [])
    row_shapes = {name: shape[1:] for name, shape in shapes.items()}
    if not row_shapes:
        return RowwiseResult(Verdict.DEPENDENT, 'its result does not depend on its inputs', [])
    return analyse(graph.subgraph, row_shapes, mode.training)


def used_only(graph: StaticGraph, role: str) -> set[str]:
    """Return names of the variables that are only inputs of operators in this role (see `Op`)."""
    nodes = graph.subgraph.nodes
    found: set[str] = set()
    other: set[str] = set()
    for node in nodes:
        slots = getattr(op_of(node.op), role)
        for slot, entry in enumerate(node.inputs):
            (found if slot in slots else other).add(nodes[entry.node].name)
    return found - other
