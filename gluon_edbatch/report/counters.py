"""Counters of what was batched, and of what was not and why."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.native.threads import get_num_threads
from gluon_edbatch_core.schedule import fewest_batches, lower_bound

from ..execute.counts import EvaluationCounts, calls_written, options_among, passes_of
from ..execute.executable import WHY
from ..record.calls import Form
from ..record.families import why_not_padded
from ..record.recording import Recording
from ..subgraph.node_type import NodeType
from .analysed import analysed

_EFFORT = 10_000  # of searches for a tighter bound


class TypeReport(NamedTuple):
    """Counters of the calls of one type.

    Attributes
    ----------
    name : str
    calls, batches : int
    note : str
        Why calls run one by one, or eagerly, if they do.
    hoisted : int
        How often the part that depends on known values only ran ahead, for all calls together, or
        rows of tables with row_sparse gradients were looked up.
    passes : tuple of str
        The compile options that made a difference to the type (see `CompileOptions`).
    alike : str
        A key that is equal for types that differ in shapes and constants only.
    by_length : str
        Why types that differ in lengths only are not padded to one length, if there are any.
    """

    name: str
    calls: int
    batches: int
    note: str
    hoisted: int = 0
    passes: tuple[str, ...] = ()
    alike: str = ''
    by_length: str = ''


class Report(NamedTuple):
    """Counters of a scope, over all its evaluations.

    Attributes
    ----------
    scheduler : str
    evaluations, nodes, batches, lower_bound : int
    types : tuple of TypeReport
        A printed line has shapes of arguments without the batch axis, ``k`` for a ragged axis, and
        in brackets the compile options that had an effect (see `CompileOptions`).
    gathered_rows, sliced_rows : int
        Rows that batches read by index, and as slices of an arena.
    record_ms : float
        Time from the beginning of the scope to the first evaluation, the user's code included, and
        time to make graphs.
    learn_ms : float
        Time to learn a policy before choosing batches, as the FSM scheduler does on the first
        minibatches of a model.
    unseen_states : int
        Number of choices in states without a learned type.
    schedule_ms, execute_ms : float
        Time to choose batches; time to plan them and pass them to MXNet's asynchronous engine.
    forced : tuple of Site
        The user's lines that forced an evaluation while the scope was still recording.
    threads : int
        Number of threads that native operators may use (`set_num_threads`).
    recurring : int
        Number of evaluations whose plan came from the cache, made for equal calls of an earlier
        scope.
    kept_plans : int
        Number of plans that are kept for evaluations like these; at most 16.
    decided_by : str
        What chose the batches of the last evaluation, such as a rule, and how many batches this and
        others took where they were compared.
    above : tuple of (Graph, int)
        Graphs that took more batches than the lower bound, and the bound.
    """

    scheduler: str
    evaluations: int
    nodes: int
    batches: int
    lower_bound: int
    types: tuple
    gathered_rows: int
    sliced_rows: int
    record_ms: float
    learn_ms: float
    unseen_states: int
    schedule_ms: float
    execute_ms: float
    forced: tuple
    threads: int
    recurring: int = 0
    kept_plans: int = 0
    decided_by: str = ''
    above: tuple = ()

    @property
    def tighter_bound(self) -> int:
        """A lower bound that a short search proves, which may take a tenth of a second."""
        return self.lower_bound + sum(
            fewest_batches(graph, _EFFORT).batches - bound for graph, bound in self.above
        )

    @property
    def mean_batch_size(self) -> float:
        """Mean number of calls per batch."""
        return self.nodes / self.batches if self.batches else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all counters as a dict for JSON."""
        fields = dict(
            self._asdict(), mean_batch_size=self.mean_batch_size, tighter_bound=self.tighter_bound
        )
        del fields['above']
        fields['types'] = [kind._asdict() for kind in self.types]
        fields['forced'] = [str(site) for site in self.forced]
        return fields

    def __str__(self) -> str:
        learned = f'learn a policy {self.learn_ms:.0f} ms, ' if self.learn_ms else ''
        bound = f'{self.lower_bound}'
        if self.above:
            bound += f', by a search {self.tighter_bound}'
        lines = [
            f'{self.nodes} calls of {len(self.types)} types in {self.batches} batches '
            f'({self.scheduler}; lower bound {bound}), '
            f'{self.mean_batch_size:.1f} calls a batch',
            f'rows read: {self.gathered_rows} gathered, {self.sliced_rows} as slices',
            f'record {self.record_ms:.2f} ms, {learned}schedule {self.schedule_ms:.2f} ms, '
            f'execute {self.execute_ms:.2f} ms (submission); '
            f'native operators use {self.threads} thread{"s" * (self.threads > 1)}',
        ]
        folded = _folded(self.types)
        width = max([len(kind.name) for kind in folded], default=0)
        for kind in folded:
            note = f'   one by one: {kind.note}' if kind.note else ''
            passes = f'   ({", ".join(kind.passes)})' if kind.passes else ''
            lengths = f'   by length: {kind.by_length}' if kind.by_length else ''
            lines.append(
                f'  {kind.name:{width}}  {kind.calls:7d} calls in {kind.batches:5d} '
                f'batches{passes}{note}{lengths}'
            )
        if self.recurring:
            lines.append(
                f'  {self.recurring} of {self.evaluations} evaluations recur: their plans were '
                f'there already ({self.kept_plans} are kept)'
            )
        if self.decided_by:
            lines.append(f'  batches chosen by {self.decided_by}')
        lines += [
            f'  evaluated early {self.forced.count(site)} times by {site}'
            for site in dict.fromkeys(self.forced)
        ]
        return '\n'.join(lines)


def _folded(types: Iterable[TypeReport]) -> list[TypeReport]:
    """Merge types that differ in shapes and constants only; their name says how many they are."""
    groups: dict[tuple, list[TypeReport]] = {}
    for kind in types:
        groups.setdefault((kind.alike, kind.note, kind.passes), []).append(kind)
    return [
        alike[0]._replace(
            name=_name_of_all(alike),
            calls=sum([one.calls for one in alike]),
            batches=sum([one.batches for one in alike]),
        )
        for alike in groups.values()
    ]


def _name_of_all(alike: list[TypeReport]) -> str:
    first, names = alike[0].name, len({kind.name for kind in alike})  # shapes are in the name
    if len(alike) == 1:
        return first
    differing = ['shapes'] * (names > 1) + ['constants'] * (names < len(alike))
    return f'{first} and {len(alike) - 1} with other {" or ".join(differing)}'


def make_report(scheduler: str, recording: Optional[Recording], record_s: float) -> Report:
    """Add up the evaluations of a scope, which was recorded in `record_s` seconds; None before it
    is entered."""
    counts = recording.evaluator.counts if recording else []
    types: dict[int, TypeReport] = {}
    for count in counts:
        passes, written = passes_of(count), calls_written(count)
        for group in count.plan.groups:
            kind = group.node_type
            known = types.get(kind.serial) or TypeReport(
                repr(kind), 0, 0, kind.why_one_by_one, alike=_alike(kind)
            )
            known = known._replace(
                note=WHY if count.are_large else known.note,
                passes=options_among(kind, known.passes, passes[kind.serial]),
            )
            if group.hoisted:
                types[kind.serial] = known._replace(hoisted=known.hoisted + 1)
            else:
                types[kind.serial] = known._replace(
                    calls=known.calls + int(written[group.nodes].sum()),
                    batches=known.batches + group.size,
                )
    for serial, why in _by_length(counts, recording.forms if recording else ()).items():
        types[serial] = types[serial]._replace(by_length=why)
    bounds = [lower_bound(count.graph) for count in counts]
    return Report(
        scheduler,
        len(counts),
        sum(int(calls_written(count).sum()) for count in counts),
        sum(len(count.schedule) for count in counts),
        sum(bounds),
        tuple(types.values()),
        sum(count.plan.gathered_rows for count in counts),
        sum(count.plan.sliced_rows for count in counts),
        1e3 * (record_s + sum(count.collect_s for count in counts)),
        1e3 * sum(count.schedule.learn_s for count in counts),
        sum(count.schedule.unseen_states for count in counts),
        1e3 * sum(count.schedule_s - count.schedule.learn_s for count in counts),
        1e3 * sum(count.execute_s for count in counts),
        tuple(recording.evaluator.forced) if recording else (),
        get_num_threads(),
        sum(count.is_cached for count in counts),
        sum(map(len, {count.plans for count in counts if count.plans is not None})),
        counts[-1].schedule.decided_by if counts else '',
        tuple(
            (count.graph, bound)
            for count, bound in zip(counts, bounds)
            if len(count.schedule) > bound
        ),
    )


def _by_length(counts: Collection[EvaluationCounts], forms: Sequence[Form]) -> dict[int, str]:
    """Return why types that differ in lengths only are not padded to one length, by serial."""
    ran = {group.node_type.serial for count in counts for group in count.plan.groups}
    owners = {form.node_type: form.block for form in forms if form.node_type.serial in ran}
    families: dict[tuple, list[NodeType]] = {}
    for node_type, block in owners.items():
        if not node_type.alone:
            families.setdefault((block, _alike(node_type)), []).append(node_type)
    reasons: dict[int, str] = {}
    for (block, _), same in families.items():
        if len(same) > 1:
            why = analysed(why_not_padded, block, same)
            reasons.update({node_type.serial: why for node_type in same})
    return reasons


def _alike(node_type: NodeType) -> str:
    """Return a key that is equal for types that differ in shapes and constants only."""
    dtypes = ', '.join([np.dtype(argument.arena[1]).name for argument in node_type.arguments])
    modes = ''.join([f', {name}' for name, on in node_type.mode._asdict().items() if on])
    return f'{node_type.name}({dtypes}) on {node_type.ctx}{modes}'
