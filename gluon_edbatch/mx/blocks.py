"""Access to Gluon's blocks beyond their public interface."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon

RECURRENT_LAYERS = frozenset((gluon.rnn.RNN, gluon.rnn.LSTM, gluon.rnn.GRU))
CALL_CACHED_OP: Any = gluon.HybridBlock._call_cached_op  # runs the graph of a hybridized block


def is_recorded(block: gluon.Block) -> bool:
    """Return whether scopes record a block's calls: a HybridBlock with Gluon's forward(), or an
    equal one. Any other forward() runs for each sample: a ZoneoutCell's keeps its result."""
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
    """Return what a block's `hybrid_forward` returns for arrays, hybridized or not."""
    parameters = {name: each.data(ctx) for name, each in block._reg_params.items()}
    return block.hybrid_forward(mx.nd, *args, **parameters)


def children_of(block: gluon.Block) -> list[gluon.Block]:
    """Return the blocks that a block has as children."""
    return list(block._children.values()) if block._children else []


def hooks_of(block: gluon.Block) -> list[Any]:
    """Return the functions that a user has registered on a block, to run before or after it."""
    before, after = block._forward_pre_hooks, block._forward_hooks
    return [*after.values(), *before.values()] if before or after else []


def names_of_blocks(net: gluon.Block) -> dict[gluon.Block, list[str]]:
    """Return all blocks in a model with their dotted names there; the model itself is ``net``."""
    found: dict[gluon.Block, list[str]] = {net: ['net']}

    def look(block: gluon.Block, prefix: str) -> None:
        for name, child in block._children.items():
            found.setdefault(child, []).append(f'{prefix}{name}')
            look(child, f'{prefix}{name}.')

    look(net, '')
    return found
