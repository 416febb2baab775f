"""Training on several workers, with a checkpoint after each epoch, from which it goes on:

python -m gluon_edbatch.distributed -n 2 -s 1 python workers.py --kvstore dist_sync --checkpoint DIR
"""

import argparse
import json
import os
import random
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from gluon_edbatch.data import BalancedSampler, recorded_calls
from gluon_edbatch.distributed import Trainer, connect


class Digits(edb.AutoBatchMixin, gluon.Block):
    """Decide whether a list of digits has a nine."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(10, 8)
            self.long = nn.Dense(16, in_units=16)  # not every minibatch meets it
            self.cell = rnn.GRUCell(16, input_size=8)
            self.scores = nn.Dense(2, in_units=16)

    def forward(self, digits):
        """One list of them."""
        states = self.cell.begin_state(1)
        for digit in digits:
            output, states = self.cell(self.embed(digit), states)
        return self.scores(self.long(output) if len(digits) == 8 else output)


def save(folder, net, trainer, epochs, losses):
    """All that training goes on from. What is known last is renamed last: a process that is killed
    leaves the checkpoint of an earlier epoch."""
    folder.mkdir(exist_ok=True)
    net.save_parameters(str(folder / f'{epochs}.params'))
    trainer.save_states(str(folder / f'{epochs}.states'))
    (folder / 'new').write_text(json.dumps({'epochs': epochs, 'losses': losses}))
    os.replace(folder / 'new', folder / 'done.json')


def resume(folder, net, trainer):
    """How many epochs are done, and their losses."""
    done = json.loads((folder / 'done.json').read_text())
    net.load_parameters(str(folder / f'{done["epochs"]}.params'))
    trainer.load_states(str(folder / f'{done["epochs"]}.states'))
    return done['epochs'], done['losses']


def main():
    """Losses by epoch, and a sum over all parameters."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--kvstore', help='dist_sync; without it, one process alone')
    parser.add_argument('--batch-size', type=int, default=16, help='of each worker')
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('--checkpoint', type=Path)
    parser.add_argument('--resume', action='store_true')
    parser.add_argument('--fail-in', type=int, help='an epoch in which worker 1 fails')
    options = parser.parse_args()

    random.seed(1)
    samples = [[random.randrange(10) for _ in range(random.randint(1, 8))] for _ in range(160)]
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    with connect(options.kvstore) as workers:
        mx.random.seed(1 + workers.rank)
        net = Digits()
        net.initialize(mx.init.Xavier())
        rate = {'learning_rate': 1e-2}
        trainer = Trainer(net.collect_params(), 'adam', rate, workers=workers)
        sampler = BalancedSampler(
            recorded_calls(net, samples),
            options.batch_size,
            num_workers=workers.size,
            rank=workers.rank,
        )
        done, losses = 0, []
        if options.resume:  # all workers read what worker 0 wrote
            done, losses = resume(options.checkpoint, net, trainer)
        for epoch in range(done, options.epochs):
            total = np.zeros(1)
            for step, (minibatch, joined) in enumerate(
                zip(sampler.epoch(epoch), sampler.joined_sizes)
            ):
                if epoch == options.fail_in and step == 2 and workers.rank == 1:
                    raise RuntimeError('as if a machine had failed')
                with autograd.record():
                    with edb.batching():
                        each = [loss_fn(net(samples[i]), int(9 in samples[i])) for i in minibatch]
                    loss = edb.concat(each).sum()
                loss.backward()
                trainer.step(joined, ignore_stale_grad=True)
                total += loss.asscalar()
            losses.append(float(workers.sum_numbers(total)[0]) / len(samples))
            if options.checkpoint and workers.rank == 0:
                save(options.checkpoint, net, trainer, epoch + 1, losses)
        weights = sum(one.data().abs().sum().asscalar() for one in net.collect_params().values())
        told = {'rank': workers.rank, 'losses': losses, 'weights': float(weights)}
        print(json.dumps(told), flush=True)


if __name__ == '__main__':
    main()
