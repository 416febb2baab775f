"""Run the programs in the documentation's pages: Python blocks, and the output that they state.

All blocks of a page are one program, which runs in a file with the page's line numbers: errors name
them, and sources of functions can be read. A block of text right after a block of Python is what
that prints, where ``...`` stands for anything. Hidden comments have what a block needs (``<!--
invisible-code-block: python … -->``), or say why it does not run (``<!-- skip: next "why" -->``),
as Sybil reads them.
"""

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import linecache
from pathlib import Path
from typing import Any
from unittest import SkipTest

from sybil import Document, Example
from sybil.parsers.markdown import CodeBlockParser, SkipParser

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(path: Path) -> int:
    """Run a page's program, and compare what it prints; return how many blocks of Python ran.

    Raises
    ------
    AssertionError
        If a block printed something else than the page says.
    """
    printed: dict[int, str] = {}  # by the place in the page where a block ends

    def run(example: Example) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            _execute(example)
        printed[example.region.end] = out.getvalue()

    def compare(example: Example) -> None:
        text, start = example.document.text, example.region.start
        for end, got in printed.items():
            if end <= start and text[end:start].strip('`\n ') == '':
                _compare(example, got)

    document = Document.parse(
        str(path), CodeBlockParser('python', run), CodeBlockParser('text', compare), SkipParser()
    )
    document.namespace['__name__'] = path.stem
    for example in document.examples():
        with contextlib.suppress(SkipTest):
            example.evaluate()
    return len(printed)


def _execute(example: Example) -> None:
    source = '\n' * (example.line + example.parsed.line_offset) + example.parsed
    path = f'{example.path}:{example.line}.py'  # a file of its own, whose functions have a source
    linecache.cache[path] = len(source), None, source.splitlines(keepends=True), path
    execute(source, path, example.namespace)


def execute(source: str, path: str, namespace: dict[str, Any]) -> None:
    """Run statements, in which ``await`` may be outside functions, as in a notebook."""
    code = compile(source, path, 'exec', ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, namespace)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _compare(example: Example, got: str) -> None:
    want = str(example.parsed)
    if not doctest.OutputChecker().check_output(want, got, _FLAGS):
        raise AssertionError(
            f'{example.path}:{example.line} says that this is printed:\n{want}\nand it is:\n{got}'
        )
