"""tqdm's progress bar; where tqdm is not installed, nothing is shown."""

from typing import Any

__all__ = ['progress_bar']

try:
    from tqdm import tqdm as progress_bar
except ModuleNotFoundError:

    class progress_bar:  # type: ignore[no-redef]
        """Accept the arguments of tqdm, and show nothing."""

        disable = True

        def __init__(self, **options: Any):
            pass

        def __enter__(self) -> 'progress_bar':
            return self

        def __exit__(self, *error: Any) -> None:
            pass

        def update(self, count: int = 1) -> None:
            """Count steps."""
