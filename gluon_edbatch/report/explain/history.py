"""All calls of a scope, evaluated or waiting, as arrays."""

from dataclasses import replace
from typing import NamedTuple, Optional

import numpy as np
from mxnet import gluon

from gluon_edbatch_core.graph.collect import form_table
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule.bound import ranks

from ...record.recording import Recording
from ...record.sites import Site, site_at
from ...subgraph.node_type import NodeType


class History(NamedTuple):
    """The n calls of a scope in the order in which they were recorded; arrays are (n,) int64."""

    places: list[tuple[Site, str]]  # with the operator or class of blocks that was called there
    types: list[NodeType]
    blocks: list[Optional[gluon.Block]]  # what was called, by type; None for operators
    place: np.ndarray
    type: np.ndarray  # additions that ran as sums have the types of these
    block: np.ndarray  # counted in the order in which they were met
    batch: np.ndarray  # over all evaluations; -1 for calls that wait
    evaluation: np.ndarray  # -1 for calls that wait
    graph: Graph  # all calls, with their places as types

    @classmethod
    def of(cls, recording: Recording) -> 'History':
        """Return the history of a recording with one call or more."""
        forms = recording.node_forms.since(0)
        owners = {form.node_type: form.block for form in recording.forms}
        types, blocks = list(owners), list(owners.values())
        of_form = _numbered([form.node_type for form in recording.forms], types)
        batch, evaluation, ran_as = _ran(recording, forms)
        kind = of_form[forms]
        names = [
            node_type.name if block is None else type(block).__name__
            for node_type, block in owners.items()
        ]
        called = [id(block) if block is not None else name for block, name in zip(blocks, names)]
        sites, site = _sites(recording)
        called_as = [(name, block is None) for name, block in zip(names, blocks)]
        operations = sorted(set(called_as))  # a block and an operator may have one name
        keys, place = distinct(site, _numbered(called_as, operations)[kind])
        places = [(sites[site], operations[operation][0]) for site, operation in keys.tolist()]
        return cls(
            places,
            types,
            blocks,
            place,
            of_form[ran_as],
            _numbered(called, list(dict.fromkeys(called)))[kind],
            batch,
            evaluation,
            _graph(recording, place, len(places)),
        )

    def ranks(self, *columns: np.ndarray) -> np.ndarray:
        """Return (n,) the most calls that agree with a call in these columns, (n,) each, on a path
        that ends at it. Calls that agree need as many batches as the largest of their ranks, and
        those of one rank could be one batch."""
        keys, group = distinct(*columns)
        types, alone = group.astype(np.int32), np.zeros(len(keys), bool)
        return ranks(replace(self.graph, types=types, num_types=len(keys), alone=alone))


def split(calls: np.ndarray, column: np.ndarray) -> list[np.ndarray]:
    """Return calls by their numbers in a column, (n,), the least first."""
    if not len(calls):
        return []
    calls = calls[np.argsort(column[calls], kind='stable')]
    return np.split(calls, np.flatnonzero(np.diff(column[calls])) + 1)


def distinct(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of columns of small integers, ascending, and the index of each row
    among them."""
    code = np.zeros(len(columns[0]), np.int64)  # one sort of numbers is faster than one of rows
    for column in columns:
        lowest = column.min(initial=0)
        code = code * (column.max(initial=0) - lowest + 1) + (column - lowest)
    _, first, of_row = np.unique(code, return_index=True, return_inverse=True)
    return np.stack(columns, axis=1)[first], of_row


def _numbered(items: list, of: list) -> np.ndarray:
    numbers: dict[object, int] = {item: number for number, item in enumerate(of)}
    return np.array([numbers[item] for item in items], np.int64)


def _sites(recording: Recording) -> tuple[list[Site], np.ndarray]:
    """Return the user's lines, and the index of each call's line."""
    codes, code = np.unique(recording.node_codes.since(0), return_inverse=True)
    pairs, of_call = distinct(code, recording.node_instructions.since(0))
    found = [site_at(int(codes[code]), instruction) for code, instruction in pairs.tolist()]
    sites = sorted(set(found))
    return sites, _numbered(found, sites)[of_call]


def _ran(recording: Recording, forms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return batch, evaluation and form of each call as it ran."""
    batch, evaluation = np.full((2, len(recording.node_forms)), -1, np.int64)
    ran_as, first = forms.copy(), 0
    for number, count in enumerate(recording.evaluator.counts):
        made = count.schedule
        batch[count.calls[made.order]] = first + np.repeat(
            np.arange(len(made)), np.diff(made.bounds)
        )
        evaluation[count.calls] = number
        ran_as[count.calls] = forms[count.calls]
        if count.sums is not None:
            batch[count.sums.calls] = batch[count.sums.roots]
            evaluation[count.sums.calls] = number
            ran_as[count.sums.calls] = count.sums.forms
        first += len(made)
    return batch, evaluation, ran_as


def _graph(recording: Recording, place: np.ndarray, places: int) -> Graph:
    calls = np.arange(len(recording.node_forms))
    producer = calls.repeat(form_table(recording).outputs[recording.node_forms.since(0)])
    args = recording.node_args.since(0)
    computed = args >= 0
    offsets = np.append(0, np.cumsum(computed))[np.append(0, recording.node_ends.since(0))]
    return Graph(
        place.astype(np.int32),
        offsets,
        producer[args[computed]].astype(np.int32),
        places,
        np.zeros(places, bool),
    )


def seconds_of_calls(recording: Recording) -> np.ndarray:
    """Return how long each call took, a share of its batch by rows; 0 where it was not measured."""
    rows = form_table(recording).rows[recording.node_forms.since(0)]
    seconds = np.zeros(len(rows))
    for count in recording.evaluator.counts:
        of_batch = count.clock.seconds() if count.clock else np.zeros(count.plan.size)
        for group in count.plan.groups:
            calls, sizes = count.calls[group.nodes], np.diff(group.bounds)
            in_batch = np.add.reduceat(rows[calls], group.bounds[:-1])
            seconds[calls] += rows[calls] * np.repeat(of_batch[group.numbers] / in_batch, sizes)
    return seconds
