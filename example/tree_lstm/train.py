"""Train a child-sum Tree-LSTM on SICK's relatedness task; see --help."""
import sys
from pathlib import Path

if __package__ in (None, ''):               # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from typing import Optional, Sequence

import mxnet as mx

from tree_lstm.checkpoint import CheckpointError
from tree_lstm.data import DataError
from tree_lstm.options import OptionError, parse
from tree_lstm.run import SPLITS, Run

__all__ = ['main']


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    run = None
    try:
        options, found = parse(arguments)
        run = Run(options, found)
        print(_describe(run), flush=True)
        if not options.inference_only:
            run.train()
        print(_final_table(run), flush=True)
        if options.report:
            print(run.scope.report() if run.scope else 'nothing was batched: no report')
    except (DataError, OptionError, CheckpointError, OSError, FloatingPointError) as error:
        print(f'train.py: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(_interrupted(run), file=sys.stderr)
        return 130
    finally:
        mx.nd.waitall()                     # nothing may be under way when Python ends
    return 0


def _describe(run: Run) -> str:
    counts = ', '.join(f'{len(run.pairs[split])} {split}' for split in SPLITS)
    options = run.options
    how = 'one by one' if options.unbatched else f'batched, scheduler {options.scheduler}'
    return (f'pairs: {counts}; words: {len(run.words.vocab)}; hidden {options.hidden}, embedding '
            f'{options.embed}, minibatch {options.batch_size}; {how}; on {options.ctx}')


def _final_table(run: Run) -> str:
    """Dev and test figures of the network as it is now."""
    rows = [f'{"":8}{"Pearson r":>12}{"Spearman rho":>14}{"MSE":>10}{"samples/s":>12}']
    for split in ('dev', 'test'):
        figures, speed = run.evaluate(split)
        rows.append(f'{split:8}{figures.pearson:12.4f}{figures.spearman:14.4f}'
                    f'{figures.mse:10.4f}{speed:12.1f}')
    of = f'best on dev: epoch {run.best[0]} of {len(run.history)}' if run.history \
        else 'a fresh network'
    rule = '-' * len(rows[0])
    return '\n'.join(['', of, rule, rows[0], rule, *rows[1:], rule])


def _interrupted(run: Optional[Run]) -> str:
    if run is None or run.options.inference_only or run.options.checkpoint is None:
        return '\ninterrupted; nothing was saved (--checkpoint FILE saves every epoch)'
    if not run.epochs_saved:
        return '\ninterrupted before the end of the first epoch; nothing was saved'
    return (f'\ninterrupted; {run.options.checkpoint} has epoch 1 to {run.epochs_saved}: '
            'go on with --resume')


if __name__ == '__main__':
    sys.exit(main())
