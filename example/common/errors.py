"""Errors that a program tells its user in one line."""

__all__ = ['DataError', 'OptionError']


class DataError(ValueError):
    """A file of a data set is missing or malformed; the message names file and line."""


class OptionError(ValueError):
    """Options that do not go together."""
