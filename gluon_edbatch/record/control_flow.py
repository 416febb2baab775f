"""Calls of blocks with control flow of MXNet's: ``F.contrib.cond``, ``while_loop``, ``foreach``.

MXNet tells the shapes of a cond or while_loop only when it has run, and cannot put all loops and
branches into a graph. Such a call is not recorded as one. Its operators are called one by one, as
those of a block that is not hybridized: a condition is a value that is read, so what it depends on
runs for each sample, and what follows the last one waits for that of others.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

from mxnet import gluon

from ..mx.blocks import call_plain
from ..subgraph.structure import builder, flatten
from .hooks import suspended
from .inputs import ARRAYS

found: 'WeakSet[gluon.HybridBlock]' = WeakSet()  # blocks that were seen to have some


def call_operators(recording: Any, block: gluon.HybridBlock, args: Sequence[Any]) -> Any:
    """What a block returns, operator by operator. The calls of its children are recorded as usual.

    A SymbolBlock has a graph instead of code: it runs eagerly, on values that are read for it.
    """
    found.add(block)
    recording.find_ctx(block, args)
    leaves: list[Any] = []
    template = flatten(tuple(args), ARRAYS, leaves)
    values = recording.values(leaves)
    if isinstance(block, gluon.SymbolBlock):
        values = [value.evaluated() for value in values]
        with suspended():
            return block.forward(*builder(template)(values))
    return call_plain(block, builder(template)(values), recording.ctx)
