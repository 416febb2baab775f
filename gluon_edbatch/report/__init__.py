"""Reports of what was done: counters, explanations line by line of the user's code, pictures."""

from .counters import Report, TypeReport

__all__ = ['Report', 'TypeReport']
