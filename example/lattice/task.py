"""Find Chinese named entities as a task of the training program."""

from pathlib import Path

import mxnet as mx

from example.common.errors import OptionError
from example.common.tag_task import TagTask
from example.common.task import SPLITS
from example.common.vocab_task import build_vocab, saved_vocabs

from .data import LAYOUT, build_lattice, find_words, load_split, load_words
from .model import CELLS, LatticeTagger

__all__ = ['LatticeTask']

SAMPLE = Path(__file__).with_name('sample')


class LatticeTask(TagTask):
    """Find named entities by character, with the help of a word list. One sample is one lattice."""

    name = 'lattice'
    description = (
        'Train a lattice LSTM or GRU to find named entities in Chinese, from '
        'characters and the dictionary words among them (Weibo NER).'
    )
    sample = SAMPLE
    layout = LAYOUT
    defaults = {'batch_size': 32, 'hidden': 100, 'lr': 5e-3}
    embed_width = 50
    shape = (*TagTask.shape, 'model', 'bidirectional')
    paths = (*TagTask.paths, 'words')

    @classmethod
    def add_options(cls, data, model) -> None:
        super().add_options(data, model)
        data.add_argument(
            '--words',
            metavar='FILE',
            help='a word a line; what follows a space is ignored (default, with '
            'the embedded sample only: its own)',
        )
        model.add_argument(
            '--model', choices=sorted(CELLS), default='lstm', help='which recurrent cell'
        )
        model.add_argument(
            '--bidirectional',
            action='store_true',
            help='read each lattice from right to left as well',
        )

    def __init__(self, options, state=None):
        self.options = options
        if options.words is None:
            if Path(options.data).resolve() != SAMPLE:
                raise OptionError(f'--data {options.data} needs a word list: --words FILE')
            options.words = str(SAMPLE / 'words.txt')
        raw = {split: load_split(options.data, split) for split in SPLITS}
        dictionary = load_words(options.words)
        words = {
            split: [find_words(sentence.chars, dictionary) for sentence in raw[split]]
            for split in SPLITS
        }
        self.vocabs = (
            saved_vocabs(state)
            if state
            else {
                'chars': build_vocab(
                    (char for sentence in raw['train'] for char in sentence.chars), min_freq=2
                ),
                'words': build_vocab(
                    (arc.word for found in words['train'] for arc in found), min_freq=2
                ),
                'tags': build_vocab(
                    (tag for split in SPLITS for sentence in raw[split] for tag in sentence.tags),
                    unknown=False,
                ),
            }
        )
        chars, known = self.vocabs['chars'], self.vocabs['words']
        self.samples = {
            split: [
                build_lattice(sentence, found, chars.__getitem__, known.__getitem__, self.tag_id)
                for sentence, found in zip(raw[split], words[split])
            ]
            for split in SPLITS
        }

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        sizes = [len(self.vocabs[name]) for name in ('chars', 'words', 'tags')]
        net = LatticeTagger(
            options.model, *sizes, options.embed, options.hidden, options.bidirectional
        )
        self.initialize(net)
        return net
