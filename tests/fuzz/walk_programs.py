#!/usr/bin/env python3
"""Compile random networks with Python control flow, and compare the programs with eager Gluon.

Each case is a Gluon Block that is drawn by a seed, as source: nested loops and branches over values
and over what is known, methods, recursion, lists, dicts, numbers read from arrays and given back.
It is compiled with one sample; the program is run for six others at once and for each alone.
Structure, numbers, arrays (1e-5 of their scale) and, in every other case, gradients (1e-4) are to
be eager's; each fourth program is written and loaded, too, and each fourth is asked for its
reports. Where eager itself gives something else if all that it computes with is changed by 5e-6, a
decision was too near a threshold: such cases are counted apart. Prints how often each construct was
there, and why programs were refused; the exit status says whether there was a difference.

    python -m tests.fuzz.walk_programs --cases 5000 --seed 1
    python -m tests.fuzz.walk_programs --seed 1 --only 17           # one case, with its source
    python -m tests.fuzz.walk_programs --seed 1 --only 17 --shrink  # as few lines as differ
"""

import argparse
import sys
import time
from collections import Counter

from tests.fuzz.programs.case import DIED, DIFFERS, EAGER_FAILS, REFUSED, Outcome, reason
from tests.fuzz.programs.shrink import shrunk
from tests.fuzz.programs.source import Writer
from tests.fuzz.programs.table import as_json, table
from tests.fuzz.programs.workers import run_cases


def arguments(argv=None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=200, help='how many (default: 200)')
    parser.add_argument('--seed', type=int, default=1, help='which (default: 1)')
    parser.add_argument('--first', type=int, default=0, help='number of the first (default: 0)')
    parser.add_argument('--only', type=int, metavar='NUMBER', help='this case only')
    parser.add_argument(
        '--shrink', action='store_true', help='with --only: leave out what does not matter'
    )
    parser.add_argument('--jobs', type=int, default=2, help='processes at once (default: 2)')
    parser.add_argument('--json', metavar='FILE', help='write the table there, too')
    return parser.parse_args(argv)


def main(argv=None) -> int:
    """Run the command line; return the exit status."""
    options = arguments(argv)
    numbers = range(options.first, options.first + options.cases)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
        program = Writer(f'{options.seed} {options.only}').program()
        if options.shrink:
            program = shrunk(program, options.only)
        print(program.source)
    progress = Progress(len(numbers))
    outcomes = run_cases(options.seed, numbers, options.jobs, progress)
    print(table(outcomes))
    failed = [each for each in outcomes if each.how in (DIFFERS, DIED)]
    refusals = Counter([reason(each.why) for each in outcomes if each.how == REFUSED])
    for why, count in refusals.most_common():
        example = next(each for each in outcomes if each.how == REFUSED and reason(each.why) == why)
        print(f'refused {count}, such as --only {example.number}: {why}')
    for each in failed:
        again = f'python -m tests.fuzz.walk_programs --seed {options.seed} --only {each.number}'
        print(f'\n{each.how}: {each.why}\n  again: {again}')
    counted = sum(each.how != EAGER_FAILS for each in outcomes)
    refused = sum(refusals.values())
    print(
        f'{len(outcomes)} programs, {counted} without those in which eager MXNet fails: '
        f'{len(failed)} differences, {refused} refused ({refused / max(counted, 1):.1%})'
    )
    if options.json:
        as_json(outcomes, options.json)
    return 1 if failed else 0


class Progress:
    """Says on stderr how far it is, and what differs."""

    def __init__(self, total: int):
        self.total, self.how = total, Counter()
        self.begin = self.said = time.perf_counter()

    def __call__(self, outcome: Outcome) -> None:
        self.how[outcome.how] += 1
        if outcome.how in (DIFFERS, DIED):
            print(f'{outcome.number}: {outcome.how}: {outcome.why}', file=sys.stderr)
        now = time.perf_counter()
        if now - self.said > 10:
            self.said = now
            done = ', '.join([f'{count} {how}' for how, count in self.how.most_common()])
            print(
                f'{sum(self.how.values())} of {self.total}: {done}; {now - self.begin:.0f} s',
                file=sys.stderr,
            )


if __name__ == '__main__':
    sys.exit(main())
