"""Tools for tests of the package, and of models and schedulers written elsewhere."""

from .matches_eager import assert_matches_eager
from .scheduling import check_schedule, check_scheduler

__all__ = ['assert_matches_eager', 'check_schedule', 'check_scheduler']
