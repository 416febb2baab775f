"""Find the batch signature of a call: work done once for each call signature, or once a scope."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.base import NotImplementedForSymbol
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import EdbError, RecordError

from ..mx.numpy_compat import attribute_text
from ..mx.parameters import contexts
from ..ops.numbers import Numbered
from ..subgraph.fingerprint import Fingerprint
from ..subgraph.node_type import NO_LENGTHS, Kind, Mode, NodeType, make_type
from ..subgraph.options import CompileOptions
from ..subgraph.sentences import inverse, lengths_first
from ..subgraph.spec import Spec, device_of
from ..subgraph.trace import (
    INPUT,
    StaticGraph,
    describe,
    trace_block,
    trace_numbered,
    trace_operator,
)
from .calls import ANY, Callee, Form, Prefix, rows_of_outputs, summary
from .hooks import tracing_block
from .inputs import Inputs
from .lazy import LazyArray, RaggedArray
from .model_watch import ModelWatch
from .remembered import (
    Maker,
    Refusal,
    Remembered,
    block_root,
    keep,
    operator_kinds,
    operator_maker,
    operator_root,
    operator_types,
    remember,
    shared_types,
    tracing,
    types_of,
)
from .sites import current_site, site_of_error
from .stores import SEVERAL, ShownAs, Store


class Forms(Inputs):
    """Make and find the forms of a recording's calls."""

    def __init__(self, ctx: Optional[mx.Context], options: CompileOptions):
        super().__init__(ctx)
        self.options = options
        self.model = ModelWatch()  # what calls read of the user's model
        # for each mode the forms of calls by key, and blocks with theirs
        self._modes: dict[Mode, tuple[dict[tuple, Any], dict[gluon.Block, Callee]]] = {}
        self.update_mode()

    def update_mode(self) -> None:
        """Read autograd's state again: calls recorded in different states have different types."""
        self.mode = Mode(
            autograd.is_recording(), autograd.is_training(), self.value_type is not LazyArray
        )
        self.taped = self.mode.recording
        self.forms_by_key, self.callees = self._modes.setdefault(self.mode, ({}, {}))
        self.known_by_name: dict[str, dict[tuple, Remembered]] = {}  # see `form_by`

    @contextmanager
    def in_mode(self, mode: Mode) -> Iterator[None]:
        """Record as in another mode of autograd meanwhile."""
        before = self.mode, self.forms_by_key, self.callees, self.known_by_name
        self.mode = mode
        self.forms_by_key, self.callees = self._modes.setdefault(mode, ({}, {}))
        self.known_by_name = {}
        try:
            yield
        finally:
            self.mode, self.forms_by_key, self.callees, self.known_by_name = before

    def stores(self) -> list[Store]:
        """Return the stores that values refer to."""
        stores = [reference() for reference in self.all_stores]
        return [store for store in stores if store is not None]

    def find_ctx(self, block, args: Sequence[Any] = ()) -> None:
        """Set the context of numbers before the first call: a block's parameters' or an array's."""
        if self._ctx is None:
            found = next(contexts(block), ())
            if len(found) == 1:
                self._ctx = found[0]
            elif not found:
                arrays = (device_of(arg) for arg in args if isinstance(arg, NDArray))
                self._ctx = next(arrays, None)

    def form_of_block(self, block, template, leaves, state: Fingerprint = ()) -> Form:
        """Return the form of a block's calls with this structure of arguments and state of
        constants."""
        mark = self.model.mark(block)
        maker = Maker(
            describe(block), types_of(block, mark), (template, state), (template, mark + state)
        )
        form = self._form_of(maker, leaves, lambda: self.trace(block, template, leaves))
        form.block, form.mutable = block, self.model.containers_of(block)
        return form

    def trace(self, block, template, leaves) -> StaticGraph:
        """Trace a block's call as a static subgraph; raise an error that says what to change."""
        try:
            with tracing_block():
                graph = trace_block(block, template, len(leaves))
            self.model.mark(block)  # a first run may set it up
            return graph
        except EdbError:
            raise
        except NotImplementedForSymbol as error:
            raise RecordError(
                f'{describe(block)} looks at the contents of an array (if, while, bool(), '
                f'asnumpy(), …) at {site_of_error(error)}, and cannot be traced as a static '
                'subgraph: choose by F.where(condition, one, other), or put the if into the '
                f'forward() of a gluon.Block, which runs for each sample ({error})'
            ) from error
        except Exception as error:
            specs = ', '.join(str(leaf._store.spec) for leaf in leaves)
            raise RecordError(
                f'{describe(block)} cannot be traced as a static subgraph with '
                f'({specs}): {type(error).__name__}: {error}'
            ) from error

    def form_of_operator(self, op, attrs, leaves, shared, arrays) -> Form:
        """Return the form of an operator's calls that share the arguments at some positions."""
        maker, trace = self.maker_of_operator(op, attrs, leaves, shared, arrays)
        return self._form_of(maker, leaves, trace)

    def maker_of_operator(
        self, op, attrs, leaves, shared=(), arrays=(), numbered=None
    ) -> tuple[Maker, Callable[[], StaticGraph]]:
        """Return the maker of an operator's types, and a function that traces the operator. Calls
        share the `arrays` at the positions `shared`. The last argument is the number of a
        `Numbered` if there is one."""
        if numbered is not None:
            return operator_maker(op, attrs), partial(trace_numbered, op, numbered)
        weights, types = shared_types.of(op, shared, arrays) if shared else ((), operator_types)
        if shared:
            attrs = tuple([(key, value) for key, value in attrs if key != 'sparse_grad'])
        trace = partial(trace_operator, op, attrs, len(leaves), dict(zip(shared, weights)))
        return operator_maker(op, attrs, shared, types), trace

    def form_of_numbered(self, op: str, numbered: Numbered, leaves) -> Form:
        """Return the form of an operator's calls whose varying attribute becomes an argument."""
        scalars = (not leaves[0]._store.shape,)
        return self._form_of(
            operator_maker(op, numbered.rest),
            leaves,
            lambda: trace_numbered(op, numbered)._replace(scalars=scalars),
        )

    def _form_of(self, maker: Maker, leaves, trace) -> Form:
        specs = [
            (leaf._store.spec, Kind.RAGGED if isinstance(leaf, RaggedArray) else Kind.ROWS)
            for leaf in leaves
        ]
        scalars = tuple([i for i, leaf in enumerate(leaves) if not leaf._store.shape])
        return self.make_form(maker, specs, trace, scalars)

    def form_of_rewriting(
        self, name: str, spec: Spec, rule: Callable[[mx.sym.Symbol], mx.sym.Symbol], **attrs: Any
    ) -> Form:
        """Return the form of an operator that MXNet lacks, such as padding or cutting a value."""
        text = tuple([(key, attribute_text(value)) for key, value in attrs.items()])
        return self.form_by(
            (name, text, spec),
            lambda: self.make_form(
                operator_maker(name, text),
                [(spec, Kind.ROWS)],
                lambda: StaticGraph.of_symbol(name, rule(mx.sym.var(INPUT % 0))),
            ),
        )

    def form_by(self, key: tuple, make: Callable[[], Form]) -> Form:
        """Return the form under a key that all recordings share; make it if no scope has."""
        form = self.forms_by_key.get(key)
        if form is None:
            known = self.known_by_name.get(key[0])
            if known is None:
                known = operator_kinds(key[:1], self.mode, self.options)
                self.known_by_name[key[0]] = known
            kind = known.get(key)
            form = None if kind is None else self.form_again(kind)
            if form is None:
                form = make()
                if not any([store.packed for store in form.stores]):
                    remember(known, key, self.remembered_form(form))
            self.forms_by_key[key] = form
        return form

    def make_form(self, maker: Maker, specs, trace, scalars=(), **facts) -> Form:
        """Make a form whose type is remembered or traced; parameters are as for `type_of`."""
        node_type = self.type_of(maker, specs, trace, scalars, **facts)
        self.watch_parameters(maker.name, node_type)
        form = self.new_form(node_type, specs[0][0].rows)
        if form.lengths != ANY:
            self.by_length[form.index] = maker, specs
        return form

    def watch_parameters(self, name: str, node_type: NodeType) -> None:
        """Watch the parameters of a type whose calls will be recorded."""
        self.model.watch(self, name, node_type)

    def type_of(self, maker: Maker, specs, trace, scalars=(), **facts) -> NodeType:
        """Return a remembered type, or make one by tracing.

        `specs` are (Spec, Kind) of the arguments. Users see arguments at positions `scalars`
        without axes. `facts` are as for `make_type`.
        """
        try:
            with tracing:  # two threads get the same type
                return self._type_of(maker, specs, trace, scalars, facts)
        except EdbError as error:
            raise type(error)(f'{error}\n  called at {current_site()}') from error.__cause__

    def _type_of(self, maker: Maker, specs, trace, scalars, facts) -> NodeType:
        types, contexts = maker.types, {spec.ctx for spec, _ in specs}
        if len(contexts) > 1:
            raise RecordError(
                f'{maker.name} got arguments on different contexts: '
                f'{", ".join(sorted(map(str, contexts)))}'
            )
        rows = {1 if kind is Kind.PACKED else spec.rows for spec, kind in specs}
        aligned = maker.head + (
            self.mode,
            self.options,
            tuple((spec.arena, kind) for spec, kind in specs),
            scalars,
            *facts.items(),
        )
        exact = aligned + (tuple(spec.rows for spec, _ in specs),)
        node_type = types.get(exact) or (types.get(aligned) if len(rows) == 1 else None)
        if node_type.__class__ is Refusal:
            raise node_type.error(node_type.message)
        if node_type is None or not node_type.fits():
            try:
                node_type = make_type(
                    trace(),
                    self.mode,
                    specs,
                    contexts.pop(),
                    self.options,
                    maker.made_with,
                    scalars=scalars,
                    **facts,
                )
            except RecordError as error:
                if types is operator_types:  # what a block's are may change
                    keep(types, exact, Refusal(type(error), str(error)))
                raise
        only = node_type.alone or node_type.whole or any(node_type.graph.scalars)
        keep(types, exact if only else aligned, node_type)
        return node_type

    def new_form(
        self,
        node_type: NodeType,
        rows: int,
        block: Optional[gluon.Block] = None,
        mutable: Optional[tuple] = None,
        lengths: Mapping[int, int] = NO_LENGTHS,
        axes: Sequence[tuple[int, ...]] = (),
    ) -> Form:
        """Add a form for calls of this type with `rows` rows, or on sequences of certain lengths,
        by position. `axes` tells of each result where users see lengths, if it is packed."""
        rows = 1 if node_type.whole else rows
        specs = node_type.output_specs(rows, lengths)
        stores = list(map(self.store, specs, _shown(node_type, specs, lengths, axes)))
        return self.add_form(
            node_type, rows, stores, max(lengths.values(), default=0), block, mutable
        )

    def root_of(self, callee: Callee, mark: Optional[Fingerprint] = None) -> Prefix:
        """Return the search tree for calls of a block, valid while it has the fingerprint `mark`,
        by default its present one, or of an operator."""
        if callee.block is not None:
            self.find_ctx(callee.block)
            callee.mutable = self.model.containers_of(callee.block)
        if self._ctx is None or callee.shared:
            return callee.first or Prefix()  # the context of numbers is not known yet
        mode = self.mode, self.options, self._ctx
        if callee.block is None:
            return operator_root(callee.place, *mode)
        return block_root(callee.block, mark or self.model.mark_of(callee.block), mode)

    def remember(self, callee: Callee, kinds: list[Any], form: Form) -> None:
        """Let later scopes find a form by the kinds of a call's arguments, unless it returns packed
        sequences."""
        if not any([store.packed for store in form.stores]):
            callee.first.after_all(kinds).signature = self.remembered_form(form)

    def remembered_form(self, form: Form) -> Remembered:
        """Return what makes this form in another recording."""
        results = [(store.kind, store.spec, store.shown) for store in form.stores]
        alone = form.again(-1, [None] * form.outputs, None, None)
        by_length = self.by_length.get(form.index)
        return Remembered(alone, summary(form), rows_of_outputs(form), results, by_length)

    def watch_type(self, node_type: NodeType) -> bool:
        """Watch the parameters of a type; return whether the type is still valid for its calls."""
        try:
            if not node_type.fits():
                return False
            self.watch_parameters(node_type.name, node_type)
        except Exception:  # who makes it anew says what is wrong
            return False
        self.watched.add(node_type)
        return True

    def known_form_for_lengths(self, form: Form, args: Sequence[Any]) -> Optional[Form]:
        """Return `form` if padding changes nothing in this call, else the known form for its
        lengths. None if there is none yet, or `args` has other things than values and numbers."""
        for arg in args:
            if not isinstance(arg, (LazyArray, int, float)):
                return None
        node_type = form.node_type
        if node_type.neutral:
            for one, other in node_type.linked:
                if len(args[one]._ids) != len(args[other]._ids):
                    break
            else:
                return form
        return self.forms_by_key.get((form.index, _lengths_of(args)))

    def form_for_lengths(self, form: Form, args: Sequence[Any]) -> Form:
        """Return `form` if padding changes nothing in this call, else one for its lengths."""
        exact = self.known_form_for_lengths(form, args)
        if exact is None:
            lengths = _lengths_of(args)
            maker, specs = self.by_length[form.index]
            node_type = self.type_of(maker, specs, lambda: form.node_type.graph, lengths=lengths)
            exact = self.forms_by_key[form.index, lengths] = self.new_form(
                node_type, form.rows, form.block, form.mutable
            )
        return exact


def _shown(
    node_type: NodeType,
    specs: Sequence[Spec],
    lengths: Mapping[int, int],
    axes: Sequence[tuple[int, ...]],
) -> Sequence[Optional[ShownAs]]:
    """Return how users see results; None where that is the spec's shape."""
    shown = [ShownAs(()) if scalar else None for scalar in node_type.graph.scalars]
    shown += [None] * (len(specs) - len(shown))
    for place, (spec, own) in enumerate(zip(specs, axes)):
        if own in ((), (0,)):
            continue
        sizes = [spec.rows]
        if len(own) > 1:
            sizes = [each.length(lengths) for each in node_type.packed[place]]
        order = lengths_first(len(spec.row_shape) + len(own) + (0 not in own), own)
        shape = (*[1] * (0 not in own), *sizes, *spec.row_shape)
        shape = tuple([shape[axis] for axis in inverse(order)])
        shown[place] = ShownAs(shape, SEVERAL, own) if len(own) > 1 else ShownAs(shape, own[0])
    return shown


def _lengths_of(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple([len(arg._ids) for arg in args if isinstance(arg, RaggedArray)])


def key_of(leaf: LazyArray) -> object:
    """Return what identifies the kind of an argument within a recording."""
    return leaf._store.ragged if isinstance(leaf, RaggedArray) else leaf._store
