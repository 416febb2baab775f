"""The recursion of the model: all its Python code, for cells of either package.

`model.SICKModel` uses it as its ``forward``; with the cells of an exported bundle it runs without
MXNet.
"""

from typing import Any

__all__ = ['encode', 'relatedness']


def encode(model: Any, tree: Any) -> Any:
    """Return the (h, c) of a tree's root, each (1, H)."""
    children = [encode(model, child) for child in tree.children]
    return model.cell(model.embed(tree.token), children)


def relatedness(model: Any, left: Any, right: Any) -> Any:
    """Return log-probabilities (1, 5) of the scores of two trees."""
    left_h, _ = encode(model.tree_lstm, left)
    right_h, _ = encode(model.tree_lstm, right)
    return model.similarity(left_h, right_h)
