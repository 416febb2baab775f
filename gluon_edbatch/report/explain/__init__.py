"""Why calls were batched as they were, in words, place by place in the user's code.

All work is done when somebody asks: a scope only keeps the numbers of each evaluation's calls."""

from .explanation import Bar, Cause, Explanation, Reason, SiteReport
from .places import explain

__all__ = ['Bar', 'Cause', 'Explanation', 'SiteReport', 'Reason', 'explain']
