"""The rooms of the package: what may be imported where, and names that mean one thing."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import mxnet as mx
import pytest
from mxnet import gluon

import gluon_edbatch as edb
import gluon_edbatch_core
from tests.support.processes import ROOT, run_python
from tests.support.sources import nodes_of

PACKAGE = Path(edb.__file__).parent
CORE = Path(gluon_edbatch_core.__file__).parent
SOURCES = {
    path.relative_to(package): path
    for package in (CORE, PACKAGE)
    for path in sorted(package.rglob('*.py'))
}
ERRORS = {'MXNetError', 'NotImplementedForSymbol'}  # MXNet has no other place for them
MODULES = {'mx', 'mxnet', 'autograd', 'gluon', 'NDArray'}
# Private names of MXNet's objects that other rooms look at, and why.
ALLOWED = {
    '_slice': 'rows of an array at every batch; a[i:j] takes several times as long',
    # Gluon tells these to nobody, and what is to be judged or restored is the object itself.
    '_active': 'whether a block is hybridized',
    '_children': 'blocks inside a block',
    '_data': 'the arrays of a parameter, to put copies in their place',
    '_finish_deferred_init': 'a parameter whose shape the subgraph tells',
    '_flags': 'how a block is hybridized',
    '_forward_hooks': 'hooks that a trace would leave out',
    '_forward_pre_hooks': 'the same',
    '_grad_stype': 'a gradient of the rows that were used only',
    '_init_grad': 'a gradient for the copy of an array',
    '_reg_params': 'which attributes are parameters',
    '_var': 'the variable of a parameter, which keeps the old dtype',
}
# Calls into a later room, all there are while a minibatch is trained, and why.
UP = {
    'record.recording execute.evaluate': 'a value is computed when somebody looks at it',
    'record.stores execute.backward': "an arena joins autograd's tape when it is first read there",
    'mx.custom_function execute.backward': 'autograd calls what it was told to',
}
# Only where blocks are traced, compared and copied.
ROOMS_OF_GLUON = {'subgraph', 'testing'}


@pytest.fixture(scope='module')
def nodes():
    """All nodes of each module's syntax tree."""
    found = nodes_of(SOURCES.values())
    return {name: found[path] for name, path in SOURCES.items()}


def outside_mx(nodes):
    return {name: found for name, found in nodes.items() if name.parts[0] != 'mx'}


def is_private(name):
    return name.startswith('_') and not name.endswith('__')


def imported(nodes):
    """(module, name or None) of what is imported from MXNet."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def private_imports(nodes):
    for module, name in imported(nodes):
        parts = module.split('.') + ([name] if name else [])
        if parts[0] == 'mxnet' and (
            any(map(is_private, parts)) or (module == 'mxnet.base' and name not in ERRORS)
        ):
            yield '.'.join(parts)


def private_names_of_mxnet():
    """Return the private names of MXNet's objects."""
    objects = mx.nd.zeros(1), mx.sym.var('x'), gluon.nn.Dense(1), gluon.Parameter('w')
    return {name for each in objects for name in dir(each) if is_private(name)}


def private_attributes(nodes, known):
    """Yield private attributes of MXNet's modules, and of objects that may be MXNet's."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root = ast.unparse(node.value).split('.')[0]
            if root in MODULES or (node.attr in known and root not in ('self', 'cls')):
                yield node.attr


def test_private_names_of_mxnet_are_imported_in_mx_only(nodes):
    assert set(SOURCES) > {Path('mx/arrays.py'), Path('record/calls.py')}
    found = {str(name): list(private_imports(of)) for name, of in outside_mx(nodes).items()}
    assert not {name: names for name, names in found.items() if names}


def test_private_names_of_mxnet_are_used_in_mx_only(nodes):
    known = private_names_of_mxnet()
    used = {
        (name.parts[0], attribute)
        for name, of in outside_mx(nodes).items()
        for attribute in private_attributes(of, known)
    }
    assert not {
        (room, name)
        for room, name in used
        if name not in ALLOWED or (room not in ROOMS_OF_GLUON and name != '_slice')
    }
    assert {name for _, name in used} == set(ALLOWED)


def test_no_room_takes_private_names_of_another_module(nodes):
    found = [
        f'{name}: {alias.name}'
        for name, of in nodes.items()
        for node in of
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
        if is_private(alias.name)
    ]
    assert not found


def test_the_top_has_few_modules():
    assert len(list(PACKAGE.glob('*.py'))) <= 7


def test_a_stage_imports_earlier_stages_only():
    linter = Path(sys.executable).with_name('lint-imports')
    if not linter.exists():
        pytest.skip('the import linter comes with the group lint, for Python 3.11')
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_stage_calls_earlier_stages_only():
    contract = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
    layers = re.findall('"(.+)"', re.search(r'layers = \[(.*?)\]', contract, re.DOTALL).group(1))
    done = run_python(
        ROOT / 'tests/support/steps_up.py',
        *[layer.replace(' | ', ',') for layer in layers[1:]],
        GLUON_EDBATCH_COMPILED='0',
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == set(UP)


def test_one_class_one_name(nodes):
    """Private ones too, whatever their underscores."""
    places = defaultdict(list)
    for name, of in nodes.items():
        for node in of:
            if isinstance(node, ast.ClassDef):
                places[node.name.strip('_')].append(f'{name}:{node.lineno}')
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_each_file_has_a_name_of_its_own():
    """A .pxd or .h beside its .py is one with it."""
    named = defaultdict(set)
    for path in [*PACKAGE.rglob('*'), *CORE.rglob('*')]:
        if path.suffix in ('.py', '.pxd', '.h', '.cc') and not path.stem.startswith('__'):
            named[path.stem].add(path.with_suffix(''))
    assert not {stem: paths for stem, paths in named.items() if len(paths) > 1}
