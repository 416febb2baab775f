"""The loops of the tagger: all its Python code, for cells of either package.

`model.BiLSTMTagger` has them as its ``forward``; with the cells of an exported bundle they run
where there is no MXNet.
"""

from collections.abc import Sequence
from typing import Any

try:
    import gluon_edbatch as edb
except ImportError:
    import gluon_edbatch_runtime as edb

__all__ = ['both_ways', 'spelling', 'tags']


def both_ways(model: Any, inputs: Sequence[Any], begin: Any) -> tuple[list[Any], list[Any]]:
    """Return h of the LSTM from the left and of that from the right, both in the order of the
    inputs.

    Parameters
    ----------
    model
        A `model.BiLSTM`, or its cells.
    inputs : list of (1, E)
    begin : list of numpy.ndarray
        The state, [h, c], that both begin with.
    """
    return _run(model.rightward, inputs, begin), _run(model.leftward, inputs[::-1], begin)[::-1]


def _run(cell: Any, inputs: Sequence[Any], begin: Any) -> list[Any]:
    outputs, states = [], begin
    for value in inputs:
        output, states = cell(value, states)
        outputs.append(output)
    return outputs


def spelling(model: Any, chars: Sequence[int], begin: Any) -> Any:
    """Return a word's vector (1, E) from its characters."""
    rightward, leftward = both_ways(model.bilstm, [model.embed(char) for char in chars], begin)
    return edb.nd.concat(rightward[-1], leftward[0], dim=1)


def tags(model: Any, tokens: Sequence[Any], begin: Any, spelling_begin: Any) -> Any:
    """Return scores (number of tokens, number of tags).

    Parameters
    ----------
    model
        A `model.BiLSTMTagger`, or its cells.
    tokens : list
        Tokens, each with the id of a word, or the ids of its characters.
    begin, spelling_begin : list of numpy.ndarray
        The states that the LSTMs over words and those over characters begin with.
    """
    values = [
        spelling(model.spelling, token.chars, spelling_begin)
        if token.chars
        else model.embed(token.word)
        for token in tokens
    ]
    *inner, last = model.layers
    for layer in inner:
        values = [edb.nd.concat(*both, dim=1) for both in zip(*both_ways(layer, values, begin))]
    directions = [edb.concat(states) for states in both_ways(last, values, begin)]
    return model.scores(edb.nd.concat(*directions, dim=1))
