"""Errors that a program tells its user in one line."""

__all__ = ['DataError', 'OptionError', 'shortened']


_LONGEST, _LAST = 400, 60  # characters of a message, and of what follows a cut


class DataError(ValueError):
    """A file of a data set is missing or malformed; the message names file and line.

    The message is cut, as readers may quote a line of any length.
    """

    def __init__(self, message: str):
        super().__init__(shortened(message))


def shortened(text: str) -> str:
    """Return a text without its middle if it is too long to be read."""
    left_out = len(text) - _LONGEST
    if left_out <= 0:
        return text
    return (
        f'{text[: _LONGEST - _LAST]} [… {left_out} more characters …] {text[len(text) - _LAST :]}'
    )


class OptionError(ValueError):
    """Options that do not go together."""
