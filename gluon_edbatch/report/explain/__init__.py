"""Explain why calls were batched as they were, line by line of the user's code.

All work is done on demand: a scope only keeps the numbers of each evaluation's calls."""

from .explanation import Bar, Cause, Explanation, Reason, SiteReport
from .places import explain

__all__ = ['Bar', 'Cause', 'Explanation', 'SiteReport', 'Reason', 'explain']
