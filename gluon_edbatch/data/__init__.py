"""Which samples make a minibatch, on which worker, and in which form (see docs/distributed.md)."""

from .batchify import as_list
from .costs import recorded_calls
from .sampler import BalancedSampler, idle_share

__all__ = ['BalancedSampler', 'as_list', 'idle_share', 'recorded_calls']
