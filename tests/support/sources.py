"""Parse files, for tests that look at code."""

import ast
import gc
from collections.abc import Iterable
from pathlib import Path


def nodes_of(paths: Iterable[Path]) -> dict[Path, list[ast.AST]]:
    """Return all nodes of each file's syntax tree.

    Garbage collection pauses, as it would look at every node again and again: that takes twice as
    long as the parsing."""
    gc.disable()
    try:
        return {path: list(ast.walk(ast.parse(path.read_text('utf-8')))) for path in paths}
    finally:
        gc.enable()
