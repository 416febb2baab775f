"""The recorded calls of an evaluation as arrays: what scheduling sees of a minibatch."""

from ..compiled import load

load(f'{__name__}.edges')

from .graph import Graph

__all__ = ['Graph']
