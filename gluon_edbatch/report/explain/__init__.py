"""Why calls were batched as they were, in words, place by place in the user's code.

``history`` makes arrays of all that a scope recorded and ran, ``differences`` finds what tells
types of calls apart, ``reasons`` puts what kept calls apart into words, ``advice`` what would help;
``explanation`` is what users get. All work is done when somebody asks; a scope keeps for it the
numbers of the calls of each evaluation, and who asked for it.
"""

from .explanation import Bar, Cause, Explanation, Reason, SiteReport
from .places import explain

__all__ = ['Bar', 'Cause', 'Explanation', 'SiteReport', 'Reason', 'explain']
