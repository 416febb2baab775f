"""Training by several processes, on one machine or on many (see docs/distributed.md)."""

from .trainer import Trainer
from .workers import Workers, connect

__all__ = ['Trainer', 'Workers', 'connect']
