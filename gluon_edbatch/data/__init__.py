"""Choose samples for a minibatch and a worker, and their form (see docs/distributed.md)."""

from .sampler import BalancedSampler, idle_share
from .samples import as_list, recorded_calls

__all__ = ['BalancedSampler', 'as_list', 'idle_share', 'recorded_calls']
