"""What a program cannot be made of, or cannot go on with."""

from ..errors import EdbError


class ProgramError(EdbError, ValueError):
    """Code that cannot be compiled into a program; the message names the line and says what to
    write instead."""


class StepsError(EdbError, RuntimeError):
    """A program took more steps than it may: a loop that does not end."""
