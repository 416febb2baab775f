"""What a program cannot be made of, or cannot go on with."""

from ..errors import EdbError


class ProgramError(EdbError, ValueError):
    """Code that cannot be compiled into a program, or a sample that it cannot take; the message
    names the line and says what to write instead.

    Attributes
    ----------
    placed : bool
        Whether the message names a line.
    """

    def __init__(self, message: str, placed: bool = False):
        super().__init__(message)
        self.placed = placed


class StepsError(EdbError, RuntimeError):
    """A program took more steps than it may: a loop that does not end."""
