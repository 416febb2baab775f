"""Leaves out of a program what does not matter for what comes of it."""

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

from .case import TooLong, judged, limited
from .source import Program

_SECONDS = 3.0  # of processor time for a smaller program: without its counter, a loop has no end
Cut = Callable[[], None]


def shrunk(program: Program, number: int, tries: int = 400) -> Program:
    """One that is as small as is found in so many tries, with the same outcome for as good a
    reason."""
    wanted = _outcome(program, number)
    before = ''
    while before != program.source:
        before, place = program.source, 0
        while tries > 0:
            tree = ast.parse(program.source)
            cuts = list(_cuts(tree))
            if place >= len(cuts):
                break
            cuts[place]()
            tries -= 1
            smaller = program._replace(source=ast.unparse(tree))
            if _outcome(smaller, number) == wanted:
                program = smaller
            else:
                place += 1
    return program


def _outcome(program: Program, number: int) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder, limited(_SECONDS):
            how, why, _ = judged(program, Path(folder), number)
    except (Exception, TooLong) as error:  # no longer a program that ends, or one at all
        return f'fails: {type(error).__name__}'
    last = why.split('\n')[-1]
    return f'{how} {re.sub(r"[0-9.e+-]+|sample.*", "#", last)[:60]}'


def _cuts(tree: ast.Module) -> Iterator[Cut]:
    """Ways to make the net smaller, in place: the largest pieces first."""
    nets = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == 'Net']
    bodies = [body for net in nets for body in _bodies(net)]
    for body in bodies:
        for place in reversed(range(len(body))):
            if not (len(body) == 1 and isinstance(body[0], (ast.Pass, ast.FunctionDef))):
                yield _left_out(body, place)
    for body in bodies:
        for place, statement in enumerate(body):
            for inner in (getattr(statement, 'body', None), getattr(statement, 'orelse', None)):
                if inner and not isinstance(statement, ast.FunctionDef):
                    yield _replaced(body, place, inner)
    for net in nets:
        yield from _simpler(net)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ('body', 'orelse'):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                yield body


def _left_out(body: list[ast.stmt], place: int) -> Cut:
    def cut() -> None:
        body[place : place + 1] = [] if len(body) > 1 else [ast.Pass()]

    return cut


def _replaced(body: list[ast.stmt], place: int, inner: list[ast.stmt]) -> Cut:
    def cut() -> None:
        body[place : place + 1] = inner

    return cut


def _simpler(net: ast.AST) -> Iterator[Cut]:
    """A part of an expression in the place of the whole."""
    for node in ast.walk(net):
        for field, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for place, each in enumerate(values):
                if field == 'func' or not isinstance(each, (ast.expr, ast.comprehension)):
                    continue
                for part in _parts(each):
                    yield _put(node, field, place, part)


def _parts(value: ast.AST) -> list[ast.expr]:
    parts = [each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr)]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        parts += [value.func.value]
    return [each for each in parts if not isinstance(each, ast.Starred)]


def _put(node: ast.AST, field: str, place: int, part: ast.expr) -> Cut:
    def cut() -> None:
        if isinstance(getattr(node, field), list):
            getattr(node, field)[place] = part
        else:
            setattr(node, field, part)

    return cut
