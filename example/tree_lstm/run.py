"""One training run: data, model, trainer, and what was measured."""
import argparse
import contextlib
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from tqdm import tqdm

import gluon_edbatch as edb

from . import checkpoint as checkpoints
from .checkpoint import Checkpoint
from .data import Pair, RawPair, build_pairs, load_split
from .metrics import Agreement, agreement, expected_scores
from .model import SICKModel, score_loss
from .options import OptionError, saved_options
from .words import WordVectors, Words, build_words, embedding_rows, read_vectors, tokens_of

__all__ = ['SPLITS', 'Run']

SPLITS = ('train', 'dev', 'test')

# Gluon's 1e-7 makes every weight's first steps as long as the learning rate however small its
# gradient is, which blows differences of rounding up to differences of the loss in ten steps.
ADAGRAD_EPS = 1e-5


class Run:
    """Data, model and trainer of one run, and what it has measured so far.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    found : Checkpoint, optional
        Where to go on from.
    """

    def __init__(self, options: argparse.Namespace, found: Optional[Checkpoint] = None):
        self.options = options
        raw = {split: load_split(Path(options.data) / split) for split in SPLITS}
        self.words, rows = _words_and_rows(options, raw, found)
        self.pairs = {split: build_pairs(raw[split], self.words.ids) for split in SPLITS}
        self.net = _build_net(options, len(self.words.vocab), rows)
        self.loss = score_loss()
        if options.unbatched:               # as fast as one sample at a time gets
            self.net.hybridize()
            self.loss.hybridize()
        self.trainer = gluon.Trainer(
            self.net.collect_params(), 'adagrad',
            {'learning_rate': options.lr, 'wd': options.weight_decay, 'eps': ADAGRAD_EPS})
        self.history: List[Dict[str, float]] = []
        self.epochs_saved = 0
        self.best = (0, checkpoints.parameter_arrays(self.net))
        self.scope = None                   # of the last minibatch, for its report
        if found is not None:
            self._go_on_from(found)

    def train(self) -> None:
        """Train what is missing of all epochs; afterwards the network is the best of them."""
        for epoch in range(len(self.history) + 1, self.options.epochs + 1):
            loss, speed = self.train_epoch(epoch)
            dev, _ = self.evaluate('dev')
            self.history.append({'epoch': epoch, 'loss': loss, 'samples_per_s': speed,
                                 **dev._asdict()})
            if epoch == 1 or dev.pearson > self.history[self.best[0] - 1]['pearson']:
                self.best = (epoch, checkpoints.parameter_arrays(self.net))
            if self.options.checkpoint is not None:
                self.save()
            print(f'epoch {epoch:3d}  loss {loss:.4f}  dev {dev}  {speed:7.1f} samples/s',
                  flush=True)
        checkpoints.set_parameters(self.net, self.best[1])

    def train_epoch(self, epoch: int) -> Tuple[float, float]:
        """One pass over the training pairs: their mean loss, and samples a second."""
        pairs = self.pairs['train']
        seed = [self.options.seed, epoch]   # of each epoch alone, so that a run can be resumed
        order = np.random.RandomState(seed).permutation(len(pairs))
        mx.random.seed(int(np.random.RandomState(seed).randint(2 ** 31)))
        size = self.options.batch_size
        losses: List[Tuple[mx.nd.NDArray, int]] = []
        begin = time.perf_counter()
        with _bar(f'epoch {epoch}/{self.options.epochs}', len(pairs)) as bar:
            for start in range(0, len(pairs), size):
                minibatch = [pairs[i] for i in order[start:start + size]]
                losses.append((self.step(minibatch), len(minibatch)))
                bar.update(len(minibatch))
                if not bar.disable and len(losses) % self.options.log_interval == 0:
                    bar.set_postfix(loss=f'{losses[-1][0].asscalar():.4f}')
            # Read only now: to wait for each loss would keep the next minibatch from starting.
            total = sum(float(loss.asscalar()) * count for loss, count in losses)
        speed = len(pairs) / (time.perf_counter() - begin)
        if not np.isfinite(total):
            raise FloatingPointError(f'the loss of epoch {epoch} is {total}; try a smaller --lr')
        return total / len(pairs), speed

    def step(self, minibatch: Sequence[Pair]) -> mx.nd.NDArray:
        """One update of the parameters; gives the minibatch's mean loss."""
        with autograd.record():
            with self.batching() as scope:
                losses = [self.loss(self.net(pair.left, pair.right), self.target(pair))
                          for pair in minibatch]
            loss = edb.stack(losses).mean()
        loss.backward()
        self.trainer.step(1)
        self.scope = scope
        return loss.detach()

    def evaluate(self, split: str) -> Tuple[Agreement, float]:
        """How well the network does on a split, and samples a second."""
        pairs = self.pairs[split]
        size = self.options.eval_batch_size
        outputs = []
        begin = time.perf_counter()
        with _bar(split, len(pairs)) as bar:
            for start in range(0, len(pairs), size):
                minibatch = pairs[start:start + size]
                with self.batching() as scope:
                    results = [self.net(pair.left, pair.right) for pair in minibatch]
                outputs.append(edb.concat(results))
                bar.update(len(minibatch))
            predicted = expected_scores(np.concatenate([part.asnumpy() for part in outputs]))
        speed = len(pairs) / (time.perf_counter() - begin)
        if self.options.inference_only:
            self.scope = scope
        return agreement(predicted, [pair.score for pair in pairs]), speed

    def batching(self):
        """The scope in which the model's calls are batched; none with --unbatched."""
        if self.options.unbatched:
            return contextlib.nullcontext()
        return edb.batching(scheduler=self.options.scheduler)

    def target(self, pair: Pair):
        """The score's distribution; MXNet alone wants it as one of its own arrays."""
        return mx.nd.array(pair.target, self.options.ctx) if self.options.unbatched \
            else pair.target

    def save(self) -> None:
        """Write the checkpoint."""
        checkpoints.save(self.options.checkpoint, Checkpoint(
            options=saved_options(self.options), words=self.words.to_json(),
            history=self.history, parameters=checkpoints.parameter_arrays(self.net),
            best_epoch=self.best[0], best_parameters=self.best[1],
            trainer=checkpoints.trainer_states(self.trainer)))
        self.epochs_saved = len(self.history)

    def _go_on_from(self, found: Checkpoint) -> None:
        self.history = list(found.history)
        self.epochs_saved = len(self.history)
        self.best = (found.best_epoch, found.best_parameters)
        trained = found.best_parameters if self.options.inference_only else found.parameters
        checkpoints.set_parameters(self.net, trained)
        if not self.options.inference_only:
            checkpoints.restore_trainer(self.trainer, found.trainer)


def _words_and_rows(options: argparse.Namespace, raw: Dict[str, List[RawPair]],
                    found: Optional[Checkpoint]) -> Tuple[Words, Optional[np.ndarray]]:
    """The vocabulary, and the embedding to start with; settles what depends on --glove."""
    if found is not None:
        return Words.from_json(found.words), None
    known, rows = _read_glove(options, raw), None
    words = build_words(raw['train'], raw['dev'] + raw['test'], known)
    if known is not None:
        width = known.vectors.shape[1]
        if options.embed not in (None, width):
            raise OptionError(f'--embed {options.embed}: the vectors in '
                                           f'{options.glove} have {width} numbers')
        rows, missing = embedding_rows(words, known, options.seed)
        print(f'{len(words.vocab) - len(missing)} of {len(words.vocab)} words '
              f'({"cased" if words.cased else "lower case"}) have a vector')
        options.embed = width
    options.embed = options.embed or 50
    if options.embed_lr is None:
        options.embed_lr = options.lr if known is None else 0.0
    return words, rows


def _read_glove(options: argparse.Namespace, raw: Dict[str, List[RawPair]]
                ) -> Optional[WordVectors]:
    if options.glove is None:
        return None
    wanted = set(tokens_of(pair for pairs in raw.values() for pair in pairs))
    return read_vectors(options.glove, wanted | {token.lower() for token in wanted})


def _build_net(options: argparse.Namespace, vocab_size: int, rows: Optional[np.ndarray]
               ) -> SICKModel:
    mx.random.seed(options.seed)
    net = SICKModel(vocab_size, options.embed, options.hidden, options.sim_hidden)
    embedding = net.tree_lstm.embed.weight
    embedding.lr_mult = options.embed_lr / options.lr
    embedding.grad_req = 'write' if options.embed_lr else 'null'
    embedding.init = mx.init.Normal(0.5)
    net.collect_params().initialize(mx.init.Xavier(factor_type='in', magnitude=1), ctx=options.ctx)
    if rows is not None:
        embedding.set_data(rows)
    return net


def _bar(what: str, total: int) -> tqdm:
    """A progress bar, where somebody can see it."""
    return tqdm(total=total, desc=what, unit='pair', leave=False, disable=None)
