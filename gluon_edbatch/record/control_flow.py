"""Call blocks with MXNet's control flow: ``F.contrib.cond``, ``while_loop``, ``foreach``.

MXNet knows the result shapes of a cond or while_loop only when it has run, and cannot put all loops
and branches into a graph. So the call is not recorded as one: its operators are called one by one,
as in a block that is not hybridized. A condition forces an evaluation, so what it depends on runs
sample by sample. Calls after the last condition are batched with those of other samples.
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
    """Call a block operator by operator, and return its results. Calls of its children are recorded
    as usual.

    A SymbolBlock has a graph instead of code: it runs eagerly, on evaluated arguments.
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
