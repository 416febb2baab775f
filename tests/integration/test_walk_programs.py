"""The walk over random programs (tests/fuzz/walk_programs.py): a slice of it, and that it finds
faults."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gluon_edbatch.program import call_rules
from gluon_edbatch_core.branching import host_arithmetic as calculate
from tests.fuzz.programs.case import DIFFERS, SAME, judged
from tests.fuzz.programs.constructs import constructs
from tests.fuzz.programs.shrink import shrunk
from tests.fuzz.programs.source import Program, Writer

ROOT = Path(__file__).resolve().parents[2]
MUST_BE = (
    'for over range,for over zip,for over enumerate,for with else,while,while with else,break,'
    'continue,if,elif,else,early return,recursion,conditional expression,list comprehension,'
    'dict comprehension,chained comparison,operator and,operator or,operator not,:=,unpacking,'
    'star in a call, list or target,+= of a name,keyword argument,call of a method'
)


def test_a_slice(tmp_path):
    """No difference, few refusals, and every sort of control flow."""
    file = tmp_path / 'table.json'
    command = [sys.executable, '-m', 'tests.fuzz.walk_programs', '--cases', '30', '--seed', '7']
    done = subprocess.run(
        [*command, '--json', str(file)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    found = json.loads(file.read_text())
    assert found['programs'] == 30 and found['outcomes'].get('refused', 0) <= 3
    assert found['facts']['with samples that part'] > 10 and found['facts']['gradients'] > 5
    assert not set(MUST_BE.replace(', ', '; ').split(',')) - {
        name.replace(', ', '; ') for name in found['constructs']
    }


def test_programs_are_the_same_for_the_same_seed():
    first, second, other = (Writer(seed).program() for seed in ('1 5', '1 5', '1 6'))
    assert first == second != other


def test_what_is_counted():
    found = constructs(
        'class Net:\n'
        '    def forward(self, x):\n'
        '        for i, y in enumerate(self.layers):\n'
        '            if 0 < i < 2 and not y:\n'
        '                return y\n'
        '        else:\n'
        '            x += 1\n'
        '        return x\n'
    )
    assert found == {
        'for over enumerate': 1,
        'for with else': 1,
        'call of enumerate': 1,
        'if': 1,
        'chained comparison': 1,
        'operator and': 1,
        'operator not': 1,
        'early return': 1,
        'return at the end': 1,
        '+= of a name': 1,
        'tuple': 1,
    }


BROKEN = {
    'a number': (calculate._OPS, 'add', lambda one, other: one - other, 'x.sum().asscalar() + 2'),
    'a function': (
        call_rules._SPECIAL,
        min,
        call_rules._SPECIAL[max],
        'min(x.sum().asscalar(), 0.5)',
    ),
}


@pytest.mark.parametrize('name', BROKEN)
def test_it_finds_faults_and_makes_programs_small(name, monkeypatch, tmp_path):
    """In what is broken on purpose."""
    table, key, wrong, expression = BROKEN[name]
    drawn = Writer('1 3').program()
    before, forward, _ = drawn.source.rpartition('    def forward(self, x')
    source = (
        f'{before}{forward}):\n'
        f'        for i in range(3):\n'
        f'            x = self.dense(x)\n'
        f'        n = {expression}\n'
        f'        return x, n\n'
    )
    program = Program(source, ('x',))
    assert judged(program, tmp_path, 1)[0] == SAME
    monkeypatch.setitem(table, key, wrong)
    assert judged(program, tmp_path, 1)[0] == DIFFERS
    small = ast.parse(shrunk(program, 1, tries=200).source)
    (net,) = [each for each in small.body if getattr(each, 'name', '') == 'Net']
    assert len(list(ast.walk(net))) < 40
