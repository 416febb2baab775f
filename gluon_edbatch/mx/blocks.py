"""What of Gluon's blocks is not public."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon

CALL_CACHED_OP: Any = gluon.HybridBlock._call_cached_op  # runs the graph of a hybridized block


def is_recorded(block: gluon.Block) -> bool:
    """Whether a scope records its calls: a HybridBlock with Gluon's forward(), or one that is as
    good. Any other forward() runs for each sample, as of a ZoneoutCell, which keeps its result."""
    cls = type(block)
    return (
        issubclass(cls, gluon.HybridBlock)
        and not issubclass(cls, gluon.rnn.ZoneoutCell)
        and (
            cls.forward.__module__.startswith('mxnet.gluon')
            or getattr(cls.forward, 'recorded', False)
        )
        and 'forward' not in block.__dict__
    )


def call_plain(block: gluon.HybridBlock, args: Sequence[Any], ctx: mx.Context) -> Any:
    """What a block's `hybrid_forward` gives of arrays, whether the block is hybridized or not."""
    parameters = {name: each.data(ctx) for name, each in block._reg_params.items()}
    return block.hybrid_forward(mx.nd, *args, **parameters)


def names_of_blocks(net: gluon.Block) -> dict[gluon.Block, list[str]]:
    """All blocks in a model, each with its names there, with dots between; the model is ``net``."""
    found: dict[gluon.Block, list[str]] = {net: ['net']}

    def look(block: gluon.Block, prefix: str) -> None:
        for name, child in block._children.items():
            found.setdefault(child, []).append(f'{prefix}{name}')
            look(child, f'{prefix}{name}.')

    look(net, '')
    return found
