"""Gluon's `Estimator` with models for one sample (see docs/ecosystem.md)."""

from .batch_processor import BatchProcessor
from .tensorboard import TensorBoardHandler

__all__ = ['BatchProcessor', 'TensorBoardHandler']
