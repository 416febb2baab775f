"""What samples did in a program, counted while it runs."""

from collections import deque

from .graph import ProgramGraph, gotos

NEAR_KEPT = 10_000  # a server runs for months


class Counts:
    """Of all calls of a program so far.

    Attributes
    ----------
    samples : int
        How many there were.
    runs : int
        Runs of blocks; each had as many samples as came there together.
    taken : list of list of int
        For each block, how many samples took each of its ways (where there is none, how many were
        done).
    near : deque of (str, int)
        Comparisons, by line, and samples (their number in the call), where the two were as good as
        equal, so that rounding may have decided; the last `NEAR_KEPT`.
    """

    def __init__(self, graph: ProgramGraph):
        self.samples = self.runs = 0
        self.taken = [[0] * max(1, len(gotos(block.end))) for block in graph.blocks]
        self.near: deque[tuple[str, int]] = deque(maxlen=NEAR_KEPT)


def too_many(max_steps: int, line: str) -> str:
    """Why a program is not run further."""
    return (
        f'a sample ran more than {max_steps} blocks, the last at {line}: '
        f'a loop that does not end, or max_steps is to be larger'
    )
