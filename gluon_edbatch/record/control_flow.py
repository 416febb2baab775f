"""Blocks with control flow of MXNet's over their own arguments: ``F.contrib.cond``, ``while_loop``.

What shapes such operators give MXNet tells when they have run, so a call of the block is not to be
recorded as one. Its operators are called one by one instead, as those of a block that is not
hybridized: a condition is a value that is read, so what it depends on runs for each sample, and
what follows the last one waits for that of others.
"""

from typing import Any, List, Sequence
from weakref import WeakSet

from mxnet import gluon

from ..mx.blocks import call_plain
from ..subgraph.structure import builder, flatten
from .inputs import ARRAYS

found: 'WeakSet[gluon.HybridBlock]' = WeakSet()  # blocks that were seen to have some


def call_operators(recording: Any, block: gluon.HybridBlock, args: Sequence[Any]) -> Any:
    """What a block gives, operator by operator; its children's calls are calls as ever."""
    found.add(block)
    recording.find_ctx(block, args)
    leaves: List[Any] = []
    template = flatten(tuple(args), ARRAYS, leaves)
    values = builder(template)(recording.values(leaves))
    return call_plain(block, values, recording.ctx)
