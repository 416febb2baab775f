"""Arc-hybrid parsing (Kuhlmann, Gómez-Rodríguez and Satta 2011): configurations and the oracle.

Words are positions 0 to n - 1; ROOT is position n and stands at the end of the buffer, as in
Kiperwasser and Goldberg (2016). An action is a number. SHIFT moves the buffer's front to the stack.
LEFT and RIGHT, one of each for every relation, take the stack's top off, as a dependent of the
buffer's front or of the word below it. So n words take 2n actions.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple, Optional

import numpy as np

__all__ = [
    'NOWHERE',
    'SHIFT',
    'Configuration',
    'Features',
    'Legal',
    'Step',
    'left',
    'num_actions',
    'oracle',
    'penalties',
    'right',
]

NOWHERE = -1  # the position of what is not there
SHIFT = 0


def left(relation: int) -> int:
    """Return the action that makes the stack's top a dependent of the buffer's front."""
    return 2 * relation + 1


def right(relation: int) -> int:
    """Return the action that makes the stack's top a dependent of the word below it."""
    return 2 * relation + 2


def num_actions(num_relations: int) -> int:
    """Return the number of actions."""
    return 2 * num_relations + 1


class Legal(NamedTuple):
    """The kinds of actions that a configuration allows."""

    shift: bool
    left: bool
    right: bool


class Features(NamedTuple):
    """Positions that a decision depends on; `NOWHERE` if the stack is not that high."""

    third: int
    second: int
    top: int
    front: int


class Step(NamedTuple):
    """A decision, and the right action."""

    features: Features
    action: int


class Configuration:
    """Stack, front of the buffer, and the arcs so far.

    Attributes
    ----------
    heads, relations : list of int
        Heads and relations by position of the dependent; -1 before there is an arc.
    """

    __slots__ = ('_stack', '_front', '_length', 'heads', 'relations')

    def __init__(self, length: int):
        self._stack = [NOWHERE] * 3  # below all words, so that features need no cases
        self._front = 0
        self._length = length
        self.heads = [-1] * length
        self.relations = [-1] * length

    @property
    def done(self) -> bool:
        """Whether all words have heads."""
        return self._front == self._length and self._stack[-1] == NOWHERE

    def features(self) -> Features:
        """Return the positions that the next decision depends on."""
        return Features(*self._stack[-3:], self._front)

    def legal(self) -> Legal:
        """Return the legal kinds of actions: ROOT is never shifted, and has one dependent, the last
        word on the stack."""
        height = len(self._stack) - 3
        words_left = self._front < self._length
        return Legal(words_left, height == 1 or (height > 1 and words_left), height > 1)

    def apply(self, action: int) -> None:
        """Take a legal action."""
        if action == SHIFT:
            self._stack.append(self._front)
            self._front += 1
            return
        relation, rightward = divmod(action - 1, 2)
        dependent = self._stack.pop()
        self.heads[dependent] = self._stack[-1] if rightward else self._front
        self.relations[dependent] = relation


def oracle(heads: Sequence[int], relations: Sequence[int]) -> Optional[list[Step]]:
    """Return the decisions that build a tree, arcs as early as possible.

    An empty stack leaves nothing to decide, and has no step.

    Parameters
    ----------
    heads, relations : sequence of int
        Heads and relations by position; ROOT's position is ``len(heads)``.

    Returns
    -------
    list of Step, or None if the tree is not projective
    """
    state, steps = Configuration(len(heads)), []
    waiting = np.bincount(heads, minlength=len(heads) + 1).tolist()  # dependents without arc
    while not state.done:
        features, legal = state.features(), state.legal()
        top, action = features.top, SHIFT
        if top != NOWHERE and not waiting[top] and heads[top] in (features.second, features.front):
            towards = left if heads[top] == features.front else right
            action = towards(relations[top])
            waiting[heads[top]] -= 1
        elif not legal.shift:
            return None
        if top != NOWHERE:
            steps.append(Step(features, action))
        state.apply(action)
    return steps


def penalties(num_relations: int) -> dict[tuple[bool, bool, bool], np.ndarray]:
    """Return, for each `Legal`, what to add to scores: (number of actions,), -inf for illegal
    ones."""
    sorts = np.array([0] + [1, 2] * num_relations)
    return {
        legal: np.where(np.array(legal)[sorts], 0, -np.inf).astype(np.float32)
        for legal in product((False, True), repeat=3)
    }
