"""Exported models called from C++: built by CMake, compared with the runtime in Python."""

import json
import shutil
import sys
import sysconfig

import numpy as np
import pytest

import gluon_edbatch as edb
import gluon_edbatch_runtime
from gluon_edbatch_core.bundle.sample_schema import json_of
from tests.runtime import exported_models as models
from tests.runtime.exported_models import Net, samples_of
from tests.support.processes import ROOT, run

pytestmark = pytest.mark.skipif(
    not (shutil.which('cmake') and sysconfig.get_config_var('Py_ENABLE_SHARED')),
    reason='needs CMake and the shared library of Python',
)
NO_MXNET = "raise AssertionError('MXNet is imported')\n"
PROGRAM = r"""
#include <iostream>
#include <thread>

#include "edb_model.h"

std::string kinds(const edb::Value& value) {
  const auto& any = static_cast<const edb::AnyValue&>(value);
  std::string inside;
  if (const auto* list = std::get_if<edb::List>(&any))
    for (const edb::Value& item : *list) inside += kinds(item);
  if (const auto* fields = std::get_if<edb::Fields>(&any))
    for (const auto& field : *fields) inside += field.first + kinds(field.second);
  return std::string(1, "nbidsalf"[any.index()]) + (inside.empty() ? "" : "(" + inside + ")");
}

int main(int, char** arguments) {
  const edb::Model model(arguments[1]);
  if (arguments[3]) {
    std::cout << kinds(model(arguments[2]).at(0));
    return 0;
  }
  std::string found[2];
  const auto call = [&](int thread) {
    for (int i = 0; i < 5; ++i) {
      const edb::List results = model(arguments[2]);
      const auto& parts = std::get<edb::List>(static_cast<const edb::AnyValue&>(results.at(0)));
      const auto& array = std::get<edb::Array>(static_cast<const edb::AnyValue&>(parts.at(0)));
      found[thread] = array.dtype + " " + std::to_string(array.size()) + " " +
                      std::to_string(array.data<float>()[0]);
    }
  };
  std::thread one(call, 0), other(call, 1);
  one.join(), other.join();
  std::cout << found[0] << '\n' << found[1] << '\n';
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.18)
project(user CXX)
add_subdirectory({} edb)
add_executable(user user.cc)
target_link_libraries(user PRIVATE edb_model)
"""


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    """The folder with both programs, and one where importing MXNet fails."""
    folder = tmp_path_factory.mktemp('cpp')
    (folder / 'user.cc').write_text(PROGRAM)
    (folder / 'CMakeLists.txt').write_text(LISTS.format(ROOT / 'gluon_edbatch_runtime/cpp'))
    (folder / 'mxnet.py').write_text(NO_MXNET)
    flags = '-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -O0'
    python = f'-DPython3_EXECUTABLE={sys.executable}'
    for command in (['-S', folder, '-B', folder / 'build', python, flags],
                    ['--build', folder / 'build']):  # fmt: skip
        done = run(['cmake', *command])
        assert not done.returncode, done.stdout + done.stderr
    return folder


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    net = Net()
    net.initialize()
    folder = tmp_path_factory.mktemp('model') / 'bundle'
    return edb.export(net, samples_of(0, 30), folder, unpack=True)


def run_model(built, folder, samples):
    (built / 'samples.json').write_text(samples)
    program, path = built / 'build' / 'edb' / 'edb_run', f'{built}:{ROOT}'
    return run([program, folder, built / 'samples.json'], PYTHONPATH=path)


def test_results_are_those_of_python(built, exported):
    model = gluon_edbatch_runtime.load(exported)
    done = run_model(built, exported, json.dumps(model.examples))
    assert not done.returncode, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 30 and json.loads(json.dumps(json_of(model(model.examples)))) == found


def test_values_that_are_no_arrays(built, tmp_path):
    """Whole numbers, texts and lists; the code decides by values that it reads."""
    net = models.OfAStranger()
    net.initialize()
    edb.export(net, [models.Part(1, [models.Part(2, [])]), models.Part(3, [])], tmp_path / 'it')
    model = gluon_edbatch_runtime.load(tmp_path / 'it')
    done = run_model(built, tmp_path / 'it', json.dumps(model.examples))
    assert not done.returncode, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == json.loads(json.dumps(json_of(model(model.examples))))
    assert type(found[0][0][0]) is int and found[0][2][0] in ('go on', 'stop')
    (result, _), one = model(model.examples), json.dumps(model.examples)
    command = [built / 'build' / 'user', tmp_path / 'it', one, 'kinds']
    assert run(command, PYTHONPATH=f'{built}:{ROOT}').stdout == kinds_of(result)


def kinds_of(value):
    """What the program above makes of a value."""
    letters = {type(None): 'n', bool: 'b', int: 'i', float: 'd', str: 's'}
    if type(value) in letters:
        return letters[type(value)]
    if isinstance(value, np.ndarray):
        return 'a'
    if isinstance(value, (list, tuple)):
        inside = ''.join(map(kinds_of, value))
        return f'l({inside})' if inside else 'l'
    inside = ''.join([name + kinds_of(each) for name, each in sorted(vars(value).items())])
    return f'f({inside})'


def test_threads_call_one_model(built, exported):
    examples = gluon_edbatch_runtime.load(exported).examples[:3]
    done = run(
        [built / 'build' / 'user', exported, json.dumps(examples)], PYTHONPATH=f'{built}:{ROOT}'
    )
    one, other = done.stdout.splitlines()
    assert one == other and one.startswith('float32 ')
    wanted = gluon_edbatch_runtime.load(exported)(examples)[0][0]
    assert abs(float(one.split()[2]) - np.ravel(wanted)[0]) < 1e-5


@pytest.mark.parametrize(
    'samples, said',
    [
        ('[', 'JSONDecodeError: Expecting value'),
        ('[[{"token": "x"}, [1, 1]]]', 'RecordError: samples[0]'),
        ('5', 'TypeError'),
    ],
)
def test_errors_are_told(built, exported, samples, said):
    done = run_model(built, exported, samples)
    assert done.returncode == 1 and done.stderr.startswith(f'edb_run: {said}')


def test_a_folder_that_is_none(built, tmp_path):
    done = run_model(built, tmp_path, '[]')
    assert done.returncode == 1 and 'is no bundle: it has no manifest.json' in done.stderr
