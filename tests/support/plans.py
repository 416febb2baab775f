"""Make memory plans, and check what must hold of each."""

import numpy as np

import gluon_edbatch as edb


def plan_of(record, scheduler='agenda'):
    """Return the plan of one evaluation of what `record` returns."""
    with edb.batching(scheduler) as scope:
        values = record()
        evaluator = (
            scope._recording.evaluator
            if hasattr(scope._recording, 'evaluator')
            else scope._evaluator
        )
    edb.forward(values)
    return evaluator.counts[-1].plan


def assert_sound(plan):
    """Assert that writes of an arena are disjoint and ascend in execution order, and that no batch
    reads later rows."""
    written = [np.zeros(arena.rows, bool) for arena in plan.arenas]
    last = [0] * len(plan.arenas)
    produced = [np.full(arena.rows, -1) for arena in plan.arenas]
    for number, batch in enumerate(plan.batches):
        for write in batch.writes:
            assert 0 <= write.begin < write.end <= plan.arenas[write.arena].rows
            assert not written[write.arena][write.begin : write.end].any()
            assert write.begin >= last[write.arena]
            written[write.arena][write.begin : write.end] = True
            produced[write.arena][write.begin : write.end] = number
            last[write.arena] = write.end
    for number, batch in enumerate(plan.batches):
        for read in batch.reads:
            if read.length == 0:
                continue
            rows = (
                plan.indices[read.begin : read.end]
                if read.gather
                else np.arange(read.begin, read.end)
            )
            assert (rows >= 0).all() and (rows < plan.arenas[read.arena].rows).all()
            assert (produced[read.arena][rows] < number).all()
