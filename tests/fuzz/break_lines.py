#!/usr/bin/env python3
"""Break random lines of the package, one after another, and count how many of them tests find.

The lines are drawn by a seed from the statements within functions of one commit (`--base`), with a
change for each: a condition is negated, an operator swapped, a number changed, a result or a value
dropped, a call or a `raise` left out, the first round of a loop skipped. A commit (`--commit`) is
then judged in copies of its own, as plain Python: its default tests run once to tell which of them
reach which of the lines, in processes that they start, too; then each line is broken, and
``pytest -x`` runs the tests that reach it. A line that is not in the commit any more is left out.

    python -m tests.fuzz.break_lines --list
    python -m tests.fuzz.break_lines --commit HEAD --folder FOLDER    # an hour or two; resumes

`FOLDER` holds the copies and ``found.json``. The exit status is 0 if all was judged.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Optional

ROOT = Path(__file__).parents[2]
PARTS = ('gluon_edbatch', 'gluon_edbatch_core', 'gluon_edbatch_runtime')
LONGEST = 1800  # seconds for the tests of a line; a line whose tests hang is found
SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
# What is put before a line to tell that a test reached it.
REACHED = """
import os
_seen = set()

def hit(number):
    seen = number, os.environ.get('PYTEST_CURRENT_TEST', '').rpartition(' ')[0]
    if seen not in _seen:
        _seen.add(seen)
        with open(os.environ['EDB_REACHED'], 'a') as out:
            out.write(f'{seen[0]} {seen[1]}\\n')
    return False
"""


class Line(NamedTuple):
    """A statement to break: where it is, what it says, and what is to stand in its place."""

    path: str
    function: str
    line: int
    source: str
    broken: str


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--base', default='f987f80', help='draws lines of it (default: f987f80)')
    parser.add_argument('--seed', type=int, default=20261125, help='(default: 20261125)')
    parser.add_argument('--count', type=int, default=60, help='how many lines (default: 60)')
    parser.add_argument('--list', action='store_true', help='print the lines and end')
    parser.add_argument('--commit', default='HEAD', help='whose tests are judged (default: HEAD)')
    parser.add_argument('--folder', type=Path, help='for copies and results')
    parser.add_argument('--jobs', type=int, default=2, help='processes at once (default: 2)')
    options = parser.parse_args()
    lines = drawn(options.base, options.seed, options.count)
    if options.list or options.folder is None:
        for number, line in enumerate(lines):
            print(f'{number:2} {line.path}:{line.line} {line.function}')
            print(f'     {line.source}\n     {line.broken}')
        return 0
    return judge(lines, options.commit, options.folder, options.jobs)


def drawn(base: str, seed: int, count: int) -> list[Line]:
    """Lines of a commit, and how each is broken."""
    draw = random.Random(seed)
    sources = sources_of(base)
    every = [
        (path, function, statement)
        for path in sorted(sources)
        for function, statement in statements(ast.parse(sources[path]))
    ]
    lines: list[Line] = []
    for path, function, statement in draw.sample(every, len(every)):
        broken = break_statement(statement, draw)
        if broken is not None and len(lines) < count:
            text = head(statement)
            lines.append(Line(path, function, statement.lineno, text, broken))
    return lines


def sources_of(commit: str) -> dict[str, str]:
    """The Python modules of the package and the runtime."""
    names = git('ls-tree', '-r', '--name-only', commit, *PARTS).split()
    return {name: git('show', f'{commit}:{name}') for name in names if name.endswith('.py')}


def git(*words: str) -> str:
    """Run git, and return what it prints."""
    return subprocess.run(
        ['git', *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def statements(tree: ast.AST, function: str = '') -> Iterator[tuple[str, ast.stmt]]:
    """The statements within functions that can be broken, each with its function's name."""
    for child in ast.iter_child_nodes(tree):
        inner = function
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = child.name
        elif isinstance(child, ast.stmt) and function and not is_docstring(child):
            yield function, child
        yield from statements(child, inner)


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a string alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def head(statement: ast.stmt) -> str:
    """The statement on a line, of one with a body its first line."""
    return ast.unparse(statement).partition('\n')[0]


def break_statement(statement: ast.stmt, draw: random.Random) -> Optional[str]:
    """The head of the statement, broken; None if nothing of it can be."""
    if isinstance(statement, (ast.If, ast.While)):
        test = ast.unparse(statement.test)
        word = 'if' if isinstance(statement, ast.If) else 'while'
        return f'{word} {draw.choice([f"not ({test})", changed(statement.test, draw) or test])}:'
    if isinstance(statement, ast.For):
        target, values = ast.unparse(statement.target), ast.unparse(statement.iter)
        return f'for {target} in list({values})[1:]:'
    if isinstance(statement, (ast.Raise, ast.AugAssign, ast.Continue)):
        return 'pass'
    if isinstance(statement, ast.Expr):
        return None if isinstance(statement.value, (ast.Yield, ast.YieldFrom)) else 'pass'
    value = getattr(statement, 'value', None)
    if not isinstance(statement, (ast.Return, ast.Assign, ast.AnnAssign)) or value is None:
        return None
    before = head(statement)[: -len(head(ast.Expr(value)))]
    other = changed(value, draw)
    if other is None and isinstance(value, ast.Constant):
        return None
    return before + (other or 'None')


def changed(value: ast.expr, draw: random.Random) -> Optional[str]:
    """The expression with one operator swapped or one number changed; None if it has none."""
    copy = ast.parse(ast.unparse(value), mode='eval')
    places: list[Any] = [
        node
        for node in ast.walk(copy)
        if type(getattr(node, 'op', getattr(node, 'ops', [None])[0])) in SWAPPED
        or (isinstance(node, ast.Constant) and type(node.value) in (int, bool))
    ]
    if not places:
        return None
    place = draw.choice(places)
    if isinstance(place, ast.Constant):
        place.value = not place.value if isinstance(place.value, bool) else place.value + 1
    elif isinstance(place, ast.Compare):
        place.ops[0] = SWAPPED[type(place.ops[0])]()
    else:
        place.op = SWAPPED[type(place.op)]()
    return ast.unparse(copy)


def judge(lines: list[Line], commit: str, folder: Path, jobs: int) -> int:
    """Run the tests of each line, broken; 0 if all were run."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sources_of(commit)
    there = {n: place for n, line in enumerate(lines) if (place := find(line, sources))}
    copies = [folder / f'copy{number}' for number in range(jobs)]
    for copy in copies:
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(['git', 'clone', '-q', str(ROOT), str(copy)], check=True)
        subprocess.run(['git', 'checkout', '-q', git('rev-parse', commit).strip()], cwd=copy)
    reached = folder / 'reached.txt'
    if not (folder / 'reached.done').exists():
        see_reached(lines, there, copies[0], reached, jobs)
        (folder / 'reached.done').touch()
    tests: dict[int, set[str]] = {number: set() for number in there}
    for row in reached.read_text().splitlines():
        number, _, test = row.partition(' ')
        if test:
            tests[int(number)].add(test)
    found = folder / 'found.json'
    results = json.loads(found.read_text()) if found.exists() else {}
    left = [number for number in there if str(number) not in results]
    with ThreadPoolExecutor(jobs) as pool:
        free = list(copies)

        def one(number: int) -> tuple[int, str]:
            copy = free.pop()
            try:
                return number, tests_find(lines[number], there[number], copy, tests[number])
            finally:
                free.append(copy)

        for number, result in pool.map(one, left):
            results[str(number)] = result
            found.write_text(json.dumps(results, indent=1))
            line = lines[number]
            print(f'{number:2} {line.path}:{line.line} {line.broken}: {result}', flush=True)
    count = sum(not result.startswith('missed') for result in results.values())
    print(f'{count} found of {len(results)} lines that are there, of {len(lines)}')
    return 0


def find(line: Line, sources: dict[str, str]) -> Optional[tuple[str, int, int, int]]:
    """Where a line is now: its module, first and last line, and indentation."""
    places = [
        (path, statement)
        for path, source in sources.items()
        if line.function in source
        for function, statement in statements(ast.parse(source))
        if function == line.function and head(statement) == line.source
    ]
    at_home = [place for place in places if place[0] == line.path]
    places = at_home or places
    if not places or (not at_home and len(places) > 1):
        return None
    path, statement = min(places, key=lambda place: abs(place[1].lineno - line.line))
    last = statement.end_lineno or statement.lineno
    if isinstance(statement, (ast.If, ast.While, ast.For)):
        last = (statement.test if not isinstance(statement, ast.For) else statement.iter).end_lineno
    return path, statement.lineno, last or statement.lineno, statement.col_offset


def put(copy: Path, place: tuple[str, int, int, int], text: str) -> None:
    """Put a statement, or a head of one, in the place of what is there."""
    path, first, last, indent = place
    rows = (copy / path).read_text().splitlines(keepends=True)
    elif_ = 'el' if rows[first - 1].lstrip().startswith('elif') else ''
    if text.endswith(':'):  # a closing parenthesis and the colon may be on a row of their own
        while not rows[last - 1].rstrip().split('  #')[0].endswith(':'):
            last += 1
    rows[first - 1 : last] = [' ' * indent + elif_ + text + '\n']
    (copy / path).write_text(''.join(rows))


def see_reached(lines, there, copy: Path, reached: Path, jobs: int) -> None:
    """Run the default tests once, and write which reach which line."""
    (copy / '_edb_reached.py').write_text(REACHED)
    for number, place in sorted(there.items(), key=lambda item: -item[1][1]):
        hit, text = f"__import__('_edb_reached').hit({number})", lines[number].source
        if text.startswith(('if ', 'while ')):
            word, _, test = text[:-1].partition(' ')
            put(copy, place, f'{word} {hit} or ({test}):')
        else:
            path, first, _, indent = place
            rows = (copy / path).read_text().splitlines(keepends=True)
            rows.insert(first - 1, ' ' * indent + hit + '\n')
            (copy / path).write_text(''.join(rows))
    reached.unlink(missing_ok=True)
    pytest_in(copy, ['-n', str(jobs), '-q'], {'EDB_REACHED': str(reached.resolve())}, None)
    subprocess.run(['git', 'checkout', '-q', '.'], cwd=copy, check=True)


def tests_find(line: Line, place, copy: Path, tests: set[str]) -> str:
    """``found by TEST``, or ``missed by N tests``. A test that fails without the change, too, finds
    nothing."""
    left = set(tests)
    chosen = copy / 'chosen.txt'
    words = ['-x', '-q', '-n', '0', '--no-header', '@chosen.txt']
    whole = (copy / place[0]).read_text()
    while left:
        chosen.write_text('\n'.join(sorted(left)))
        put(copy, place, line.broken)
        status, said = pytest_in(copy, words, {}, LONGEST)
        (copy / place[0]).write_text(whole)
        if status is None:
            return f'found: the tests run for over {LONGEST} s'
        if status == 0:
            break
        names = [row.split()[1] for row in said.splitlines() if row.startswith(('FAILED', 'ERROR'))]
        test = next((test for test in sorted(left) if names and test in names[0]), None)
        if test is None:
            return f'found: exit status {status}'
        chosen.write_text(test)
        if pytest_in(copy, words, {}, LONGEST)[0] == 0:
            return f'found by {test}'
        left.remove(test)
    return f'missed by {len(tests)} tests' if tests else 'missed: no test reaches it'


def pytest_in(copy: Path, words, variables, seconds) -> tuple[Optional[int], str]:
    """Exit status, None after too long, and output of pytest in a copy."""
    paths = os.pathsep.join(map(str, (copy, copy / 'tests', copy / 'scripts')))
    environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': paths, **variables}
    command = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', *words]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, timeout=seconds, text=True, capture_output=True
        )
    except subprocess.TimeoutExpired:
        return None, ''
    return done.returncode, done.stdout


if __name__ == '__main__':
    sys.exit(main())
