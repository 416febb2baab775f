"""A shift-reduce parser: it learns its actions from a teacher, then takes those that it finds best,
which its next scores depend on. One generator is the model of both, eager or in batches."""

import json
import random
from contextlib import nullcontext

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb

SHIFT, LEFT, RIGHT = range(3)
NOTHING, WORDS = 0, 12  # a row of the table stands for what is not there


def allowed(stack, words):
    """Which actions are possible, for -inf in the place of scores of others."""
    return np.array([len(words) > 0, len(stack) > 1, len(stack) > 1])


def teacher(sentence):
    """Joins a tree and a larger word behind it as soon as they meet, under that; the rest at the
    end."""
    stack, words, actions = [], list(sentence), []
    while words or len(stack) > 1:
        if len(stack) > 1 and (stack[-1] > stack[-2] or not words):
            right, left = stack.pop(), stack.pop()
            stack.append(max(left, right))
            actions.append(LEFT if right > left else RIGHT)
        else:
            stack.append(words.pop(0))
            actions.append(SHIFT)
    return actions


class Parser(edb.AutoBatchMixin, gluon.Block):
    """Scores of actions by the two upmost trees, the next word, and the actions until now."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, size)
            self.encode = rnn.LSTMCell(size, input_size=size)
            self.history = rnn.GRUCell(size, input_size=size)
            self.taken = nn.Embedding(4, size)
            self.join = nn.Dense(size, activation='tanh', in_units=2 * size)
            self.score = nn.HybridSequential()
            self.score.add(
                nn.Dense(size, activation='relu', in_units=4 * size), nn.Dense(3, in_units=size)
            )

    def walk(self, sentence, lesson=None):
        """Waits for scores to choose the next action, unless a lesson has it; all actions and
        scores."""
        words, states, stack = [], self.encode.begin_state(1), []
        for word in reversed(sentence):
            vector, states = self.encode(self.embed(word), states)
            words.append(vector)
        if lesson is None:
            yield  # the vectors of all sentences
        nothing, past = self.embed(NOTHING), self.history.begin_state(1)
        actions, scores = [], []
        while words or len(stack) > 1:
            seen = ([nothing, nothing, *stack][-2:], [nothing, *words][-1])
            last, past = self.history(self.taken(actions[-1] if actions else 3), past)
            scores.append(self.score(nd.concat(*seen[0], seen[1], last, dim=1)))
            if lesson is None:
                found = yield scores[-1]
                found = np.where(allowed(stack, words), found[0], -np.inf)
                actions.append(int(found.argmax()))
            else:
                actions.append(lesson[len(actions)])
            if actions[-1] == SHIFT:
                stack.append(words.pop())
            else:
                right, left = stack.pop(), stack.pop()
                both = (left, right) if actions[-1] == LEFT else (right, left)
                stack.append(self.join(nd.concat(*both, dim=1)))
        return actions, scores

    def parse(self, sentence):
        """Yield for scores, and return the actions; for `run_concurrently`."""
        actions, _ = yield from self.walk(sentence)
        return actions

    def forward(self, sentence, lesson):
        """Scores of each action of a lesson: nothing is waited for."""
        (result,) = edb.run_concurrently([sentence], lambda one: self.walk(one, lesson))
        return edb.concat(result[1])


def loss_of(net, loss_fn, samples):
    """Mean over all actions of all sentences."""
    return edb.concat([loss_fn(net(*sample), nd.array(sample[1])) for sample in samples]).mean()


def main():
    """Losses by epoch, the share of sentences parsed as taught, and whether eager agrees."""
    random.seed(1)
    mx.random.seed(1)
    sentences = [
        [random.randrange(1, WORDS) for _ in range(random.randint(2, 7))] for _ in range(340)
    ]
    data, unseen = [(one, teacher(one)) for one in sentences[:300]], sentences[300:]
    net, loss_fn = Parser(24), gluon.loss.SoftmaxCELoss()
    net.initialize(mx.init.Xavier())

    found = []
    for scope in (edb.batching(), nullcontext()):
        with autograd.record():
            with scope:
                loss = loss_of(net, loss_fn, data[:5])
        loss.backward()
        found.append([loss] + [one.grad().copy() for one in net.collect_params().values()])
    apart = max(abs(one - other).max().asscalar() for one, other in zip(*found))

    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 1e-2})
    epochs = []
    for _ in range(8):
        random.shuffle(data)
        losses = []
        for at in range(0, len(data), 50):
            with autograd.record():
                with edb.batching():
                    loss = loss_of(net, loss_fn, data[at : at + 50])
            loss.backward()
            trainer.step(1)
            losses.append(loss.asscalar())
        epochs.append(sum(losses) / len(losses))

    with edb.batching() as scope:
        parsed = edb.run_concurrently(unseen, net.parse)
    report = scope.report()
    return {
        'losses': epochs,
        'apart': apart,
        'eager parses the same': parsed[:8] == edb.run_concurrently(unseen[:8], net.parse),
        'as taught': sum(map(list.__eq__, parsed, map(teacher, unseen))) / len(unseen),
        'actions of the longest': max(map(len, parsed)),
        'evaluations': report.evaluations,
        'calls': report.nodes,
        'batches': report.batches,
    }


if __name__ == '__main__':
    print(json.dumps(main(), default=float))
