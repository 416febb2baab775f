"""Convert an unexpected error of a report's analysis to text, which is not raised."""

from typing import Any, Callable

FAILED = 'this analysis failed'
strict = False  # whether such errors are raised, as in this package's tests


def analysed(analysis: Callable[..., str], *args: Any) -> str:
    """Return what an analysis says, or that it failed: batches ran whatever a report says."""
    try:
        return analysis(*args)
    except Exception as error:
        if strict:
            raise
        return f'{FAILED} ({type(error).__name__}: {" ".join(str(error).split())[:200]})'
