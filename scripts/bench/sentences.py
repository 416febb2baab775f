"""Workload ``transformer-sst``: the example's model on whole sentences of the Stanford Sentiment
Treebank, with its default options but for the width."""

from collections import Counter
from pathlib import Path
from typing import Any, Dict, Sequence

from sentence_sst.data import Sentence
from sentence_sst.task import SentenceTask
from tree_sst.data import NUM_CLASSES

from .tasks import TaskWorkload
from .workloads import Products

__all__ = ['TransformerSST']


class _Sentences(TaskWorkload):
    """Sentences of the treebank (or the sample of the tree models); a loss, and scores, for each.
    ``--embed`` does not apply: words and layers have one width."""

    widths = ('hidden',)

    def files(self, data: Path) -> Dict[str, Path]:
        return {'data': data / 'sst'}

    def predict(self, net, sample: Sentence) -> Any:
        return net(sample)

    def targets(self, sample: Sentence):
        return [sample.label]


class TransformerSST(_Sentences):
    """Two layers with four heads."""

    task_class = SentenceTask

    def products(self, samples: Sequence[Sentence]) -> Products:
        """A word's query, key, value and projection in each layer, and its two products between;
        the scores of a sentence. Products of words with each other are not among them."""
        options, words = self.task.options, sum(map(len, samples))
        h = options.hidden
        products: Counter = Counter({(h, NUM_CLASSES): len(samples)})
        for wide, high, times in ((h, h, 4), (h, 4 * h, 1), (4 * h, h, 1)):
            products[wide, high] += times * options.layers * words
        return dict(products)

    def levels(self, samples: Sequence[Sentence]) -> int:
        return 1

    def rival(self, system: str):
        return self.padded_rival(system, 'PaddedTransformer')
