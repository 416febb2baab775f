"""Short representations of users' values for messages and reports; lazy ones are not computed."""

import reprlib
from typing import Any

import numpy as np


class _Brief(reprlib.Repr):
    """Show arrays by dtype and shape, the first items of containers, the ends of long texts."""

    def __init__(self):
        super().__init__()
        self.maxlevel = self.maxlist = self.maxtuple = self.maxdict = 3
        self.maxstring = self.maxother = self.maxlong = 60

    def repr1(self, x, level):
        """Return the short representation of a value; handles arrays and subclasses of
        containers."""
        if hasattr(x, 'shape') and hasattr(x, 'dtype') and not isinstance(x, np.generic):
            return f'{np.dtype(x.dtype).name}{x.shape}'
        shown: Any
        for kind, shown in (
            (tuple, self.repr_tuple),
            (list, self.repr_list),
            (dict, self.repr_dict),
            (str, self.repr_str),
        ):
            if isinstance(x, kind):
                return shown(x, level)
        return super().repr1(x, level)


brief = _Brief().repr
