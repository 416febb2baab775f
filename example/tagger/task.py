"""Find English named entities as a task of the training program."""

from pathlib import Path

import mxnet as mx

from example.common.errors import OptionError
from example.common.options import add_size
from example.common.tag_task import TagTask
from example.common.vocab_task import build_vocab, saved_vocabs

from .data import LAYOUT, Token, build_sentence, load_split
from .model import BiLSTMTagger

__all__ = ['TaggerTask']

SPLITS = ('train', 'dev')
SPELT_BELOW = 5  # occurrences in the training data


class TaggerTask(TagTask):
    """Find named entities by word, with characters of rare words on request. One sample is one
    sentence."""

    name = 'tagger'
    description = 'Train a BiLSTM to find named entities (WikiNER).'
    sample = Path(__file__).with_name('sample')
    layout = LAYOUT
    defaults = {'batch_size': 32, 'hidden': 100, 'lr': 5e-3}
    shape = (*TagTask.shape, 'layers', 'char', 'char_embed')
    training = (*TagTask.training, 'sparse_grad')

    @classmethod
    def add_options(cls, data, model) -> None:
        super().add_options(data, model)
        add_size(model, '--layers', 2, 'N', 'how many BiLSTMs, one over the other')
        model.add_argument(
            '--char',
            action='store_true',
            help=f'words seen fewer than {SPELT_BELOW} times get their vector '
            'from a BiLSTM over their characters; else those seen once have '
            'one vector',
        )
        add_size(model, '--char-embed', 20, 'D', "width of the characters' embedding")
        model.add_argument(
            '--sparse-grad',
            action='store_true',
            help='a step updates the vectors of the words in the minibatch only',
        )

    def __init__(self, options, state=None):
        self.options = options
        if options.char and options.embed % 2:
            raise OptionError(
                f'--embed {options.embed}: with --char, two LSTMs share the width '
                'of a word vector, which must be even'
            )
        raw = {split: load_split(Path(options.data) / f'{split}.txt') for split in SPLITS}
        words = [word for sentence in raw['train'] for word in sentence.words]
        self.vocabs = (
            saved_vocabs(state)
            if state
            else {
                'words': build_vocab(words, min_freq=SPELT_BELOW if options.char else 2),
                'chars': build_vocab((char for word in words for char in word), min_freq=2),
                'tags': build_vocab(
                    (tag for split in SPLITS for sentence in raw[split] for tag in sentence.tags),
                    unknown=False,
                ),
            }
        )
        self.samples = {
            split: [build_sentence(sentence, self.token, self.tag_id) for sentence in raw[split]]
            for split in SPLITS
        }

    def token(self, word: str) -> Token:
        """Return what the model sees of a word."""
        words, chars = self.vocabs['words'], self.vocabs['chars']
        spelt = self.options.char and word not in words
        return Token(words[word], tuple(chars[list(word)]) if spelt else ())

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        num_words, num_chars, num_tags = (
            len(self.vocabs[name]) for name in ('words', 'chars', 'tags')
        )
        net = BiLSTMTagger(
            num_words,
            num_tags,
            options.embed,
            options.hidden,
            options.layers,
            num_chars if options.char else 0,
            options.char_embed,
            options.sparse_grad,
        )
        self.initialize(net)
        return net
