"""Lines of tests that messages must name."""

import inspect
import re


class Line:
    """Remember a line of this file: ``line.here()`` stands on the line that must be named."""

    def __init__(self):
        self.site = None

    def here(self):
        """Remember the caller's line, which is expected in the message."""
        frame = inspect.currentframe().f_back
        self.site = f'{frame.f_code.co_filename}:{frame.f_lineno}'

    def assert_in(self, info, *words):
        """Assert that the message of `info` names this line and contains all words."""
        text = str(info.value)
        assert self.site is not None and re.search(re.escape(self.site) + r'(?!\d)', text), (
            f'{self.site} is not named in: {text}'
        )
        for word in words:
            assert word in text, f'{word!r} is not in: {text}'
