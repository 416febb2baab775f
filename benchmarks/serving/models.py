"""The three models that are served, each written for one sample, with their samples."""

from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx

import gluon_edbatch as edb
from gluon_edbatch.api.concurrent import contents_of

__all__ = ['MODELS', 'Model']


class Model(NamedTuple):
    """A model, and what may be asked of it.

    Attributes
    ----------
    predict
        The callable for an engine.
    together : callable
        Returns the results of a whole minibatch, without serving.
    samples : list
    """

    predict: Any
    together: Callable[[list[Any]], list[Any]]
    samples: list[Any]


def tree_lstm(data: Optional[str]) -> Model:
    """Return the Tree-LSTM on SST, hidden 150, embedding 300: a whole graph."""
    from benchmarks.workloads import data_directory
    from example.common.words import build_words
    from example.tree_sst.data import build_samples, load_split, tokens_of
    from example.tree_sst.model import TreeLSTM

    directory = data_directory(SimpleNamespace(data=data), 'sst', 'tree_sst')
    phrases = load_split(directory / 'train.txt')[:2000]
    words = build_words(tokens_of(phrases))
    net = TreeLSTM(len(words.vocab), 300, 150)
    net.initialize(mx.init.Xavier())

    def together(trees: list[Any]) -> list[Any]:
        with edb.batching():
            return contents_of([net(tree) for tree in trees])

    return Model(net, together, [sample.tree for sample in build_samples(phrases, words.ids)])


def parser(data: Optional[str]) -> Model:
    """Return the transition parser, whose next action depends on scores."""
    from example.transition_parser.task import ParserTask

    options = SimpleNamespace(
        data=(data and f'{data}/ud_ewt/lite') or ParserTask.sample,
        hidden=125, embed=100, tag_embed=25, layers=2, scorer_hidden=100, seed=1, ctx=mx.cpu(),
    )  # fmt: skip
    task = ParserTask(options)
    net = task.build()

    def together(sentences: list[Any]) -> list[Any]:
        with edb.batching():
            return edb.run_concurrently(sentences, net.parse)

    return Model(net.parse, together, task.samples['train'][:1000])


def early_exit(data: Optional[str]) -> Model:
    """Return a network with early exits, as a compiled program; thresholds part the samples."""
    from example.dynamic.networks import build, samples

    net = build('resnet')
    images = samples('resnet', *([f'{data}/mnist'] if data else []), count=64)
    _part(net, images)
    program = edb.compile_program(net, images[0])

    def together(some: list[Any]) -> list[Any]:
        return [(scores.asnumpy(), units) for scores, units in program(some)]

    return Model(program, together, images)


def _part(net: Any, images: list[Any]) -> None:
    """Set the threshold at which most images leave early, and some late."""

    def score(threshold: float) -> float:
        net.threshold = threshold
        net.release()
        units = [int(net(image)[1]) for image in images[:24]]
        early = units.count(min(units)) / len(units)
        return -abs(early - 0.8) if len(set(units)) > 1 else -1.0

    score(max([step / 100 for step in range(11, 61)], key=score))


MODELS: dict[str, Callable[[Optional[str]], Model]] = {
    'treelstm': tree_lstm,
    'parser': parser,
    'early-exit': early_exit,
}
