"""The recursion of the Tree-LSTM with two cells: all its Python code, for cells of either package.

`model.TwoCellTreeLSTM` uses it as its ``forward``; with the cells of an exported bundle it runs
without MXNet.
"""

from typing import Any

try:
    import gluon_edbatch as edb
except ImportError:
    import gluon_edbatch_runtime as edb

__all__ = ['classes']


def classes(model: Any, tree: Any) -> Any:
    """Return scores (n, 5) of the classes of a tree's n nodes, children before their parents."""
    vectors: list[Any] = []
    _encode(model, tree, vectors)
    return model.scores(edb.concat(vectors))


def _encode(model: Any, tree: Any, vectors: list[Any]) -> Any:
    if tree.children:
        left, right = tree.children
        cell = model.other_cell if tree.kind else model.cell
        state = cell(None, [_encode(model, left, vectors), _encode(model, right, vectors)])
    else:
        state = model.leaf(tree.token)
    vectors.append(state[0])
    return state
