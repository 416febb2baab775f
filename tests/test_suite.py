"""What must hold of the tests themselves."""
import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
MODULES = sorted(TESTS.rglob('*.py'))


def imported(module):
    """First names of all that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(module.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split('.')[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split('.')[0]


@pytest.mark.parametrize('module', MODULES, ids=lambda path: path.stem)
def test_no_test_module_imports_another(module):
    """What several need stands in `support`."""
    others = {path.stem for path in TESTS.glob('*.py')}
    assert not others & set(imported(module))
