#!/usr/bin/env python3
"""Call every operator of MXNet batched and eagerly, on shapes and attributes drawn by a seed.

Results and gradients must be the same within rounding (float64 is the judge), and nothing that
eager code survives may end the process. Cases in which eager MXNet itself fails do not count.
Prints what of MXNet's registry is batched, and how; the exit status says whether there was a
difference.

    python -m tests.fuzz.walk_operators --cases 10000 --seed 1
    python -m tests.fuzz.walk_operators --calls 300 --seed 1           # what comes with many calls
    python -m tests.fuzz.walk_operators --seed 1 --only 'sort#3'       # one case
"""

import argparse
import fnmatch
import json
import sys
import time

from tests.fuzz.walk.cases import find, make_cases
from tests.fuzz.walk.numpy_calls import functions
from tests.fuzz.walk.registry import registry
from tests.fuzz.walk.table import as_json, lines_of, shown
from tests.fuzz.walk.workers import run_cases


def arguments(argv=None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=1000, help='how many (default: 1000)')
    parser.add_argument('--seed', type=int, default=1, help='which (default: 1)')
    parser.add_argument(
        '--operators',
        nargs='+',
        default=['*'],
        metavar='GLOB',
        help='these operators only (names or patterns, aliases included)',
    )
    parser.add_argument(
        '--numpy',
        action='store_true',
        help='functions, methods and idioms of NumPy mode instead of operators',
    )
    parser.add_argument('--calls', type=int, default=4, help='in each case (default: 4)')
    parser.add_argument(
        '--numpy-numbers', action='store_true', help="attributes are NumPy's numbers, not text"
    )
    parser.add_argument('--only', metavar='OPERATOR#NUMBER', help='this case only')
    parser.add_argument('--jobs', type=int, default=2, help='processes at once (default: 2)')
    parser.add_argument('--json', metavar='FILE', help='write the table there, too')
    return parser.parse_args(argv)


def main(argv=None) -> int:
    """Run the command line; return the exit status."""
    options = arguments(argv)
    known = functions() if options.numpy else registry()
    if options.only:
        case = find(known, options.seed, options.only)
        if case is None:
            sys.exit(f'--only {options.only}: there is no such operator; write OPERATOR#NUMBER')
        chosen, cases = [known[case.op]], [case]
    else:
        chosen = [
            operator
            for operator in known.values()
            if any(
                fnmatch.fnmatchcase(alias, glob)
                for alias in operator.aliases
                for glob in options.operators
            )
        ]
        if not chosen:
            sys.exit(f'--operators {" ".join(options.operators)}: MXNet has no such operator')
        cases = list(make_cases(chosen, options.seed, options.cases))
    cases = [
        case._replace(calls=options.calls, numpy_numbers=options.numpy_numbers) for case in cases
    ]
    progress = Progress(len(cases), options.seed)
    results = run_cases(cases, options.jobs, seen=progress)
    lines = lines_of(chosen, results)
    print(shown(lines))
    failed = [result for result in results if result.difference]
    for result in failed:
        print(
            f'\n{result.case}\n  {result.difference}\n  again: python -m tests.fuzz.walk_operators '
            f'--seed {options.seed} --calls {options.calls}{" --numpy" * options.numpy}'
            f'{" --numpy-numbers" * options.numpy_numbers} '
            f'--only {result.case.name!r}'
        )
    counted = sum(result.how != 'eager fails' for result in results)
    print(
        f'{len(results)} cases, {counted} without those in which eager MXNet fails: '
        f'{len(failed)} differences'
    )
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as file:
            json.dump(as_json(lines, results), file, indent=1)
    return 1 if failed else 0


class Progress:
    """Says now and then on stderr how far it is."""

    def __init__(self, total: int, seed: int):
        self.total, self.seed, self.done, self.failed = total, seed, 0, 0
        self.begin = self.said = time.perf_counter()

    def __call__(self, result) -> None:
        self.done += 1
        self.failed += bool(result.difference)
        if result.difference:
            print(f'{result.case.name}: {result.case}\n  {result.difference}', file=sys.stderr)
        now = time.perf_counter()
        if now - self.said > 10:
            self.said = now
            print(
                f'{self.done} of {self.total} cases, {self.failed} differences, '
                f'{now - self.begin:.0f} s',
                file=sys.stderr,
            )


if __name__ == '__main__':
    sys.exit(main())
