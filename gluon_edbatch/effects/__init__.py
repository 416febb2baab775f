"""Tell from a program's source whether its samples may take turns, unseen by each other."""

from gluon_edbatch_core.compiled import load

load(f'{__name__}.resolved')
load(f'{__name__}.sample_objects')

from .effects import Effects
from .pure import pure
from .resolved import is_users
from .sample_objects import classes_in, shared_by

__all__ = ['Effects', 'classes_in', 'is_users', 'pure', 'shared_by']
