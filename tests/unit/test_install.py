"""Packaging: what is built and installed, what is required, and what importing says where something
is missing. ``scripts/test_install.sh`` does the same with every Python, with and without compiler.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import gluon_edbatch as edb
from gluon_edbatch import compiled
from gluon_edbatch.mx import cuda as _cuda
from gluon_edbatch_core.native import compiler
from tests.support.processes import HANG, run_python

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = 'gluon_edbatch', 'gluon_edbatch_core', 'gluon_edbatch_runtime'
SCRIPTS = sorted([*ROOT.glob('scripts/*.sh'), *ROOT.glob('example/data/*.sh')]) + [
    ROOT / '.ci' / 'run'
]
NO_COMPILER = {'CC': '/bin/false', 'CXX': '/bin/false'}
BUILD = """
import sys
from setuptools import build_meta
source, folder = sys.argv[1:]
print(getattr(build_meta, 'build_' + source)(folder))
"""


def build(what, source, folder):
    """Build a wheel or an sdist of a folder, where compilers fail; its path, and what was said."""
    done = subprocess.run(
        [sys.executable, '-c', BUILD, what, str(folder)],
        cwd=source,
        env={**os.environ, **NO_COMPILER},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return folder / done.stdout.splitlines()[-1], done.stdout


@pytest.fixture(scope='module')
def sdist(tmp_path_factory):
    """Built from a copy of what git knows of this checkout, or would add."""
    source, folder = tmp_path_factory.mktemp('source'), tmp_path_factory.mktemp('sdist')
    for name in package_files() + [
        'README.md',
        'LICENSE',
        'CHANGELOG.md',
        'MANIFEST.in',
        'pyproject.toml',
        'setup.cfg',
        'setup.py',
    ]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    path, _ = build('sdist', source, folder)
    return path


@pytest.fixture(scope='module')
def wheel(sdist, tmp_path_factory):
    """Built from the sdist: its path, and what was said."""
    source = tmp_path_factory.mktemp('unpacked')
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter='data')
    return build('wheel', next(source.iterdir()), tmp_path_factory.mktemp('wheel'))


@pytest.fixture(scope='module')
def installed(wheel, tmp_path_factory):
    """The folder of the wheel's files."""
    folder = tmp_path_factory.mktemp('installed')
    with zipfile.ZipFile(wheel[0]) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope='module')
def metadata(installed):
    """Return the wheel's metadata, an `email.message.Message`."""
    (file,) = installed.glob('*.dist-info/METADATA')
    return Parser().parsestr(file.read_text(encoding='utf-8'))


def package_files():
    """Names of the package's files, but for what is compiled from them."""
    return sorted(
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob('*')
        if path.is_file()
        and path.suffix not in ('.so', '.contents', '.pyc')
        and path.parent != compiler.BUILT
    )


def test_sdist_and_wheel_have_every_file(sdist, installed):
    with tarfile.open(sdist) as archive:
        shipped = {name.partition('/')[2] for name in archive.getnames()}
    assert not set(package_files()) - shipped
    assert {'setup.py', 'setup.cfg', 'pyproject.toml', 'README.md', 'LICENSE'} <= shipped
    missing = [name for name in package_files() if not (installed / name).exists()]
    assert not missing


def test_pictures_of_the_documentation_are_not_installed(installed):
    pictures = [path for path in installed.rglob('*') if path.suffix in ('.svg', '.png')]
    assert not pictures


def requirements(metadata, extra=None):
    """What the package, or one of its extras, requires."""
    found = [re.sub(r"[\s'\"()]", '', line) for line in metadata.get_all('Requires-Dist')]
    return sorted(
        line.partition(';')[0] for line in found if line.partition('extra==')[2] == (extra or '')
    )


def test_package_itself_requires_no_mxnet(metadata):
    assert requirements(metadata) == ['greenlet>=2', 'numpy>=1.20']


def test_extras(metadata):
    assert requirements(metadata, 'cpu') == ['gluon-edbatch[numpy1]', 'mxnet==1.9.1']
    for cuda in ('cu112', 'cu117'):
        assert f'mxnet-{cuda}==1.9.1' in requirements(metadata, cuda)
        assert 'gluon-edbatch[cuda11,numpy1]' in requirements(metadata, cuda)
    assert len(requirements(metadata, 'cuda11')) == len(_cuda.LIBRARIES)
    assert requirements(metadata, 'nlp') == ['gluonnlp==0.10.0']
    assert requirements(metadata, 'pictures') == ['matplotlib>=3.6']
    for extra in ('nlp', 'pictures', 'example', 'serve'):
        assert extra in metadata.get_all('Provides-Extra')
        assert not any(name.startswith('mxnet') for name in requirements(metadata, extra))


def test_metadata(metadata):
    assert re.match('gluon[-_]edbatch$', metadata['Name'])
    assert metadata['Version'] == edb.__version__
    assert sorted(metadata['Requires-Python'].split(',')) == ['>=3.9']
    assert metadata['License-Expression'] == 'Apache-2.0'


def test_wheel_lists_the_code_of_others(installed):
    """Nothing is compiled into this one; scripts/check_install.py looks at others."""
    (path,) = installed.glob('*.dist-info/sboms/*.cdx.json')
    content = json.loads(path.read_text(encoding='utf-8'))
    assert content['components'] == []
    assert content['metadata']['component']['purl'] == f'pkg:pypi/gluon-edbatch@{edb.__version__}'


# --- without a compiler --------------------------------------------------------------------------

PROGRAM = """
import gluon_edbatch as edb, mxnet as mx
net = mx.gluon.nn.Dense(2, in_units=2)
net.initialize()
with mx.autograd.record():
    with edb.batching():
        values = [net(mx.nd.ones((1, 2)) * i) for i in range(3)]
    loss = edb.stack(values).sum()
loss.backward()
print(edb.__file__, edb.COMPILED, edb.native_available(), net.weight.grad().asnumpy().tolist())
"""


def run_installed(installed, folder, **variables):
    """Run a program with the wheel's files, away from this checkout."""
    environment = {
        'PYTHONPATH': str(installed),
        'GLUON_EDBATCH_CACHE': str(folder),
        **NO_COMPILER,
        'GLUON_EDBATCH_COMPILED': '1',
        'GLUON_EDBATCH_NATIVE': '1',
        **variables,
    }
    result = run_python('-W', 'ignore', '-c', PROGRAM, cwd=str(folder), **environment)
    assert result.returncode == 0, result.stderr
    return result


def test_wheel_built_without_compiler_runs(wheel, installed, tmp_path):
    assert 'without native operators' in wheel[1] and 'runs as Python, slower' in wheel[1]
    result = run_installed(installed, tmp_path)
    path, flag, native, gradient = result.stdout.split(maxsplit=3)
    assert Path(path).parent == installed / 'gluon_edbatch'
    assert (flag, native, gradient.strip()) == ('False', 'False', '[[3.0, 3.0], [3.0, 3.0]]')
    assert result.stderr.count('slower') == 2 and result.stderr.count('run as Python') == 1
    assert 'C compiler' in result.stderr


def test_what_was_meant_is_not_told(installed, tmp_path):
    result = run_installed(
        installed, tmp_path, GLUON_EDBATCH_COMPILED='0', GLUON_EDBATCH_NATIVE='0'
    )
    assert not result.stderr and 'False False' in result.stdout


@pytest.mark.slow  # compiles a library
def test_wheel_built_without_compiler_compiles_at_first_use(installed, tmp_path):
    result = run_installed(installed, tmp_path, CXX=os.environ.get('CXX', ''))
    assert result.stdout.split()[2] == 'True' and 'compiling' in result.stderr


# --- compiled modules ----------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A copy of the package, with what was compiled for it."""
    if not edb.COMPILED:
        pytest.skip('nothing was compiled')
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def test_times_of_files_do_not_matter(checkout):
    for path in checkout.rglob('*.py'):
        os.utime(path)
    assert run_installed(checkout, checkout, GLUON_EDBATCH_NATIVE='0').stdout.split()[1] == 'True'


@pytest.mark.parametrize('name', ['record/calls.py', 'record/lazy.pxd', 'record/interpreter.h'])
def test_changed_source_is_what_runs(checkout, name):
    path = checkout / 'gluon_edbatch' / name
    before = path.stat()
    path.write_text(path.read_text() + '\n# changed\n')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    result = run_installed(checkout, checkout, GLUON_EDBATCH_NATIVE='0')
    assert result.stdout.split()[1] == 'False' and result.stderr.count('\n') == 1
    assert 'gluon_edbatch.' in result.stderr and 'build_ext --inplace' in result.stderr


def test_sources_in_place_of_the_installed_package_are_told(checkout, tmp_path_factory):
    """Python runs in a checkout, and the environment's package was made from another one."""
    sources = tmp_path_factory.mktemp('sources')
    for name in package_files():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, sources / name)
    both = os.pathsep.join([str(sources), str(checkout)])
    result = run_installed(sources, sources, GLUON_EDBATCH_NATIVE='0', PYTHONPATH=both)
    assert result.stdout.split()[1] == 'False' and result.stderr.count('\n') == 1
    assert 'run Python in another folder than the checkout' in result.stderr
    assert 'build_ext --inplace' in result.stderr


def test_every_extension_tells_its_contents():
    for name in compiled.NAMES:
        source = ROOT.joinpath(*name.split('.'))
        for extension in source.parent.glob(f'{source.name}.*.so'):
            assert re.match('[0-9a-f]{64}$', compiled.stamp_of(extension).read_text())
    for extension in (ROOT / 'gluon_edbatch_core').glob('_memoryviews.*.so'):
        assert re.match(r'3\.\d', compiled.stamp_of(extension).read_text())  # Cython's version


# --- importing without a usable MXNet ------------------------------------------------------------


def import_with(path, name, text, **variables):
    """Import gluon_edbatch in another process in which module `name` is `text`."""
    (path / f'{name}.py').write_text(text)
    return run_python(
        '-c',
        'import gluon_edbatch',
        cwd=str(path),
        PYTHONPATH=os.pathsep.join([str(path), str(ROOT)]),
        **variables,
    )


@pytest.mark.parametrize(
    'module, message',
    [
        ("raise ModuleNotFoundError('No module named mxnet', name='mxnet')", 'not installed'),
        ("__version__ = '1.6.0'", 'too old'),
        ("__version__ = '2.0.0b1'", 'too new'),
        ("raise AttributeError('module numpy has no attribute bool')", 'NumPy'),
    ],
)
def test_import_without_a_usable_mxnet_says_what_to_install(tmp_path, module, message):
    result = import_with(tmp_path, 'mxnet', module)
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError') and message in last and 'pip install' in last


@pytest.mark.parametrize(
    'library, message', [('libcudnn.so.8', 'cu117'), ('libcuda.so.1', 'no NVIDIA driver')]
)
def test_cuda_build_without_its_libraries(tmp_path, library, message):
    result = import_with(
        tmp_path,
        'mxnet',
        f"raise OSError('{library}: cannot open shared object file: No such file or directory')",
    )
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError') and library in last and message in last


@pytest.mark.skipif(not shutil.which('gcc'), reason='no C compiler')
def test_cuda_libraries_are_found(tmp_path):
    """Where MXNet asks for a library that an installed package of NVIDIA's has: one is compiled
    that stands for it, and a module that needs it stands for MXNet."""
    folder = tmp_path / 'nvidia' / 'nccl' / 'lib'
    folder.mkdir(parents=True)
    (folder.parents[1] / '__init__.py').touch()
    compile_c(
        'int edb_nccl(void) { return 7; }',
        '-Wl,-soname,libnccl.so.2',
        '-o',
        folder / 'libnccl.so.2',
    )
    compile_c(
        'int edb_nccl(void); int edb_mxnet(void) { return edb_nccl(); }',
        folder / 'libnccl.so.2',
        '-o',
        tmp_path / 'libmxnet.so',
    )
    result = import_with(
        tmp_path,
        'mxnet',
        f"""
import ctypes
library = ctypes.CDLL({str(tmp_path / 'libmxnet.so')!r})
raise RuntimeError(f'found {{library.edb_mxnet()}}')
""",
        LD_LIBRARY_PATH='',  # which may have another one
    )
    assert result.stderr.strip().splitlines()[-1] == 'RuntimeError: found 7'


def compile_c(source, *arguments):
    """A shared library."""
    subprocess.run(
        ['gcc', '-shared', '-fPIC', '-x', 'c', '-', '-x', 'none', *map(str, arguments)],
        input=source,
        text=True,
        check=True,
        timeout=HANG,
    )


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script):
    subprocess.run(['bash', '-n', str(script)], check=True, timeout=HANG)
    text = script.read_text()
    assert 'set -euo pipefail' in text
    for module, names in re.findall(r'from (gluon_edbatch[\w.]*) import ([\w, ]+)', text):
        for name in names.split(', '):  # scripts for other machines than CI's run them nowhere else
            if not hasattr(importlib.import_module(module), name):
                importlib.import_module(f'{module}.{name}')


def environment_script(arguments=(), **variables):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith('EDB_') and name != 'VIRTUAL_ENV'
    }
    return subprocess.run(
        ['bash', str(ROOT / 'scripts' / 'environment.sh'), *arguments],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def test_environment_help():
    result = environment_script(['--help'])
    assert result.returncode == 0 and 'EDB_VENV' in result.stdout
    assert environment_script(['--what']).returncode == 2


def test_environment_installs_what_builds_the_package():
    """The build uses what is installed, and a new environment may have too old versions."""
    project = (ROOT / 'pyproject.toml').read_text(encoding='utf-8')
    (needed,) = re.findall(r'^requires = \[\n(.*?)^\]', project, re.MULTILINE | re.DOTALL)
    tools = [
        name for name in re.findall(r'^ *"(.*?)",', needed, re.MULTILINE) if 'mxnet' not in name
    ]
    script = (ROOT / 'scripts' / 'environment.sh').read_text(encoding='utf-8')
    (installed,) = re.findall(r"^ *pip_install ('setuptools.*)", script, re.MULTILINE)
    assert installed.replace("'", '').split() == tools


def test_environment_without_a_python(tmp_path):
    result = environment_script(EDB_VENV=str(tmp_path / 'venv'), EDB_PYTHON='no-such-python')
    assert result.returncode == 1 and result.stdout == ''
    assert 'needs Python 3.9 to 3.13' in result.stderr
    assert not (tmp_path / 'venv').exists()


def test_environment_does_not_clear_other_directories(tmp_path):
    (tmp_path / 'precious').write_text('x')
    result = environment_script(EDB_VENV=str(tmp_path))
    assert result.returncode == 1 and 'is no virtual environment' in result.stderr
    assert (tmp_path / 'precious').exists()


def fingerprint(folder):
    """What an environment's stamp begins with."""
    script = (ROOT / 'scripts' / 'environment.sh').read_text()
    function = re.search(r'^fingerprint\(\) \{.*?^\}', script, re.MULTILINE | re.DOTALL).group()
    return subprocess.run(
        ['bash', '-c', f'root={ROOT}; python={folder}/bin/python\n{function}\nfingerprint'],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize('asked', ['cpu,example', 'example', 'cpu', 'test,cpu'])
def test_environment_that_is_ready_is_left_alone(asked, tmp_path):
    """The stamp alone decides, also for fewer extras: no network and no pip the second time."""
    folder = tmp_path / 'venv'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').symlink_to(sys.executable)
    (folder / '.gluon-edbatch-installed').write_text(fingerprint(folder) + 'cpu,test,example\n')
    result = environment_script(EDB_VENV=str(folder), EDB_EXTRAS=asked)
    assert result.returncode == 0 and result.stderr == ''
    assert result.stdout == f'{folder}/bin/python\n'


def empty_environment(folder):
    """A virtual environment in which a stand-in for pip says what it is asked to install."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob('lib/python*/site-packages')
    (packages / 'pip.py').write_text(
        'import sys\nif "install" in sys.argv: print("pip", *sys.argv[-1:]), sys.exit(1)\n'
    )
    return packages


def test_environment_adds_the_extras_that_it_lacks(tmp_path):
    """Missing extras are installed with the present ones; the checkout is not installed again."""
    empty_environment(tmp_path)
    stamp = tmp_path / '.gluon-edbatch-installed'
    stamp.write_text(fingerprint(tmp_path) + 'cpu,example\n')
    result = environment_script(EDB_VENV=str(tmp_path), EDB_EXTRAS='cpu,test')
    assert result.returncode == 1 and result.stdout == ''
    assert [line for line in result.stderr.splitlines() if line.startswith('pip')] == [
        'pip gluon-edbatch[cpu,example]'
    ]


def test_environment_of_another_checkout_is_refused(tmp_path):
    other, folder = tmp_path / 'other', tmp_path / 'venv'
    other.mkdir()
    packages = empty_environment(folder)
    info = packages / 'gluon_edbatch-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: gluon-edbatch\nVersion: 1.0\n')
    origin = {'url': other.as_uri(), 'dir_info': {'editable': True}}
    (info / 'direct_url.json').write_text(json.dumps(origin))
    stamp = folder / '.gluon-edbatch-installed'
    stamp.write_text('of the other\ncpu\n')
    for variable in ('EDB_VENV', 'VIRTUAL_ENV'):
        result = environment_script(**{variable: str(folder)})
        assert result.returncode == 1 and result.stdout == ''
        assert f'from the checkout {other}, ' in result.stderr and f'is {ROOT}:' in result.stderr
        assert 'EDB_VENV' in result.stderr and 'pip uninstall gluon-edbatch' in result.stderr
        assert stamp.read_text() == 'of the other\ncpu\n'
    other.rmdir()  # what was moved away owns nothing
    assert 'from the checkout' not in environment_script(EDB_VENV=str(folder)).stderr


# --- another Python ------------------------------------------------------------------------------


def is_usable(python):
    """Whether a name or path is that of a Python which makes environments."""
    command = [shutil.which(python) or 'false', '-c', 'import venv, ensurepip']
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow  # makes an environment
def test_core_tests_pass_with_python_3_12(tmp_path):
    """CI runs all tests with one Python only."""
    found = ['python3.12', *map(str, Path.home().glob('.pyenv/versions/3.12.*/bin/python'))]
    python = next(filter(is_usable, found), None)
    if python is None:
        pytest.skip('there is no Python 3.12')
    checkout = tmp_path / 'checkout'
    subprocess.run(['bash', str(ROOT / 'scripts/copy_checkout.sh'), str(checkout)], check=True)
    variables = {
        'EDB_VENV': str(tmp_path / 'environment'),
        'EDB_PYTHON': python,
        'EDB_EXTRAS': 'cpu,test',
        'PYTHONPATH': '',
    }
    done = subprocess.run(
        ['bash', str(checkout / 'scripts/test.sh'), '--fast'],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=6 * HANG,
    )
    assert done.returncode == 0, done.stdout[-5000:]
