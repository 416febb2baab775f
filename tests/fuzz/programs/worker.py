"""Runs cases, one after the other: ``python -m programs.worker SEED NUMBER...`` answers each with a
line of JSON, and tells who computes."""

import json
import sys

from .case import run_case


def main() -> None:
    """Run the command line."""
    seed, *numbers = map(int, sys.argv[1:])
    for number in numbers:
        print(json.dumps(run_case(seed, number, _say)._asdict()), flush=True)


def _say(who: str) -> None:
    print(json.dumps({'who': who}), flush=True)


if __name__ == '__main__':
    main()
