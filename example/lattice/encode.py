"""The loop over a lattice: all Python code of the model, for cells of either package.

`model.LatticeTagger` has it in its ``forward``; with the cells of an exported bundle it runs where
there is no MXNet.
"""

from collections.abc import Sequence
from typing import Any

try:
    import gluon_edbatch as edb
except ImportError:
    import gluon_edbatch_runtime as edb

__all__ = ['encode', 'tags']


def merge(cell: Any, states: Sequence[Sequence[Any]]) -> list[Any]:
    """Return one state, [h] or [h, c], from those of several arcs into a position."""
    parts = [edb.ragged(part) for part in zip(*states)]
    merged = cell(parts[0].lengths, *parts)
    return list(merged) if len(parts) > 1 else [merged]


def encode(model: Any, lattice: Any, begin: Sequence[Any]) -> list[Any]:
    """Return h at every character, each (1, H).

    Parameters
    ----------
    model
        A `model.LatticeRNN`, or its cells.
    lattice : Lattice
    begin : list of numpy.ndarray
        The state before the first character, [h] or [h, c].
    """
    states = [begin]
    for char, arcs in zip(lattice.chars, lattice.arcs):
        _, state = model.char_cell(model.char_embed(char), states[-1])
        if arcs:
            words = [model.word_cell(model.word_embed(word), states[at])[1] for at, word in arcs]
            state = merge(model.merge, [state, *words])
        states.append(state)
    return [state[0] for state in states[1:]]


def tags(model: Any, lattice: Any, begin: Sequence[Any]) -> Any:
    """Return scores (number of characters, number of tags) of a tagger that reads from left to
    right."""
    return model.scores(edb.concat(encode(model.rightward, lattice, begin)))
