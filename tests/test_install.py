"""Packaging: what is installed, what is required, and what importing says without MXNet."""
import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(ROOT.glob('scripts/*.sh')) + [ROOT / '.ci' / 'run']


@pytest.fixture(scope='module')
def config():
    parser = configparser.ConfigParser()
    parser.read(ROOT / 'setup.cfg', encoding='utf-8')
    return parser


def requirements(text):
    return text.split()


def test_package_itself_requires_no_mxnet(config):
    assert requirements(config['options']['install_requires']) == ['numpy<1.24']


def test_extras(config):
    extras = {name: requirements(text) for name, text in config['options.extras_require'].items()}
    assert extras['cpu'] == ['mxnet==1.9.1']
    assert extras['cu112'] == ['mxnet-cu112==1.9.1']
    assert extras['cu117'] == ['mxnet-cu117==1.9.1']
    assert extras['nlp'] == ['gluonnlp==0.10.0']
    for name in ('nlp', 'test', 'example', 'benchmark'):
        assert not any(requirement.startswith('mxnet') for requirement in extras[name])


def test_version_is_told_once(config):
    import gluon_edbatch
    assert config['metadata']['version'] == gluon_edbatch.__version__


def test_every_folder_with_modules_is_installed():
    setuptools = pytest.importorskip('setuptools')
    found = set(setuptools.find_packages(str(ROOT), include=['gluon_edbatch', 'gluon_edbatch.*']))
    folders = {'.'.join(path.parent.relative_to(ROOT).parts)
               for path in (ROOT / 'gluon_edbatch').rglob('*.py')}
    assert folders == found


def test_wheel_metadata(tmp_path):
    """What setuptools makes of setup.cfg, without building anything."""
    pytest.importorskip('setuptools')
    subprocess.run([sys.executable, 'setup.py', '--quiet', 'egg_info', '--egg-base',
                    str(tmp_path)], cwd=ROOT, check=True, timeout=120)
    info, = tmp_path.glob('*.egg-info')
    metadata = (info / 'PKG-INFO').read_text(encoding='utf-8')
    assert re.search(r'^Name: gluon[-_]edbatch$', metadata, re.MULTILINE)
    assert re.search(r'^Requires-Python: (>=3\.8,<3\.12|<3\.12,>=3\.8)$', metadata, re.MULTILINE)
    required = (info / 'requires.txt').read_text(encoding='utf-8')
    assert required.split('[')[0].split() == ['numpy<1.24']


def import_with(path, name, text):
    """Import gluon_edbatch in another process in which module `name` is `text`."""
    (path / f'{name}.py').write_text(text)
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(path), str(ROOT)])}
    return subprocess.run([sys.executable, '-c', 'import gluon_edbatch'], env=environment,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120,
                          cwd=str(path))


@pytest.mark.parametrize('module, message', [
    ("raise ModuleNotFoundError('No module named mxnet', name='mxnet')", 'not installed'),
    ("__version__ = '1.6.0'", 'too old'), ("__version__ = '2.0.0b1'", 'too new'),
    ("raise AttributeError('module numpy has no attribute bool')", 'NumPy')])
def test_import_without_a_usable_mxnet_says_what_to_install(tmp_path, module, message):
    result = import_with(tmp_path, 'mxnet', module)
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith('ImportError') and message in last and 'pip install' in last


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script):
    subprocess.run(['bash', '-n', str(script)], check=True, timeout=60)
    assert 'set -euo pipefail' in script.read_text()


def environment_script(arguments=(), **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith('EDB_') and name != 'VIRTUAL_ENV'}
    return subprocess.run(['bash', str(ROOT / 'scripts' / 'environment.sh'), *arguments],
                          env={**environment, **variables}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=120)


def test_environment_help():
    result = environment_script(['--help'])
    assert result.returncode == 0 and 'EDB_VENV' in result.stdout
    assert environment_script(['--what']).returncode == 2


def test_environment_without_a_python(tmp_path):
    result = environment_script(EDB_VENV=str(tmp_path / 'venv'), EDB_PYTHON='no-such-python')
    assert result.returncode == 1 and result.stdout == ''
    assert 'needs Python 3.8 to 3.11' in result.stderr
    assert not (tmp_path / 'venv').exists()


def test_environment_does_not_clear_other_directories(tmp_path):
    (tmp_path / 'precious').write_text('x')
    result = environment_script(EDB_VENV=str(tmp_path))
    assert result.returncode == 1 and 'is no virtual environment' in result.stderr
    assert (tmp_path / 'precious').exists()


def test_environment_that_is_ready_is_left_alone(tmp_path):
    """The stamp alone decides: no network and no pip the second time."""
    venv = tmp_path / 'venv'
    (venv / 'bin').mkdir(parents=True)
    (venv / 'bin' / 'python').symlink_to(sys.executable)
    script = (ROOT / 'scripts' / 'environment.sh').read_text()
    function = re.search(r'^fingerprint\(\) \{.*?^\}', script, re.MULTILINE | re.DOTALL).group()
    default = re.search(r'EDB_EXTRAS:-([\w,]+)', script).group(1)
    stamp = subprocess.run(
        ['bash', '-c', f'root={ROOT}; extras={default}; python={venv}/bin/python\n'
                       f'{function}\nfingerprint'],
        stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    (venv / '.gluon-edbatch-installed').write_text(stamp)
    result = environment_script(EDB_VENV=str(venv))
    assert result.returncode == 0 and result.stderr == ''
    assert result.stdout == f'{venv}/bin/python\n'
