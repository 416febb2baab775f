"""Bundles: what is written, and that nothing but a whole one is read."""

import json

import numpy as np
import pytest

import gluon_edbatch as edb
from gluon_edbatch_core.bundle.manifest import NAME, VERSION, BundleWriter, _digest, read_bundle


@pytest.fixture
def folder(tmp_path):
    """A bundle with one array."""
    with BundleWriter(tmp_path / 'bundle', 'things') as bundle:
        bundle.content['entry'] = bundle.add_array('array.npy', np.arange(6, dtype=np.float32))
        bundle.content['word'] = 'é'
    return tmp_path / 'bundle'


def change(folder, signed=True, **entries):
    path = folder / NAME
    manifest = json.loads(path.read_text(encoding='utf-8'))
    manifest.update(entries)
    if signed:
        manifest['digest'] = _digest(manifest)
    path.write_text(json.dumps(manifest), encoding='utf-8')


def refused(folder, match, kind='things'):
    with pytest.raises(edb.BundleError, match=match):
        read_bundle(folder, kind)


def test_what_was_written_is_read(folder):
    bundle = read_bundle(folder, 'things')
    assert bundle.content['word'] == 'é'
    np.testing.assert_array_equal(bundle.array(bundle.content['entry']), np.arange(6))
    assert sorted(path.name for path in folder.iterdir()) == ['array.npy', NAME]
    assert [path.name for path in folder.parent.iterdir()] == ['bundle']


def test_what_failed_to_be_written_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match='no luck'), BundleWriter(tmp_path / 'new', 'a') as bundle:
        bundle.add('file', b'1')
        raise ValueError('no luck')
    assert not list(tmp_path.iterdir())


def test_a_bundle_is_replaced_when_the_new_one_is_whole(folder):
    with pytest.raises(ValueError), BundleWriter(folder, 'things') as bundle:
        raise ValueError
    read_bundle(folder, 'things')
    with BundleWriter(folder, 'things') as bundle:
        bundle.content['word'] = 'newer'
    assert read_bundle(folder, 'things').content == {'word': 'newer'}
    assert [path.name for path in folder.parent.iterdir()] == ['bundle']


def test_other_folders_are_not_replaced(tmp_path):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'thesis.txt').write_text('')
    with pytest.raises(edb.BundleError, match='mine is there, and is no bundle'):
        BundleWriter(tmp_path / 'mine', 'things').__enter__()
    assert (tmp_path / 'mine' / 'thesis.txt').exists()


def test_missing_files(folder, tmp_path):
    refused(tmp_path / 'nowhere', 'nowhere is no bundle: it has no manifest.json')
    (folder / 'array.npy').unlink()
    refused(folder, r'array\.npy is missing')


def test_truncated_files(folder):
    data = (folder / 'array.npy').read_bytes()
    (folder / 'array.npy').write_bytes(data[:-3])
    refused(folder, rf'array\.npy is truncated: it has {len(data) - 3} bytes, not {len(data)}')
    (folder / 'array.npy').write_bytes(data + b'1')
    refused(folder, r'array\.npy is another file')


def test_altered_files(folder):
    data = bytearray((folder / 'array.npy').read_bytes())
    data[-1] ^= 1
    (folder / 'array.npy').write_bytes(data)
    refused(folder, r'array\.npy was altered: its digest is not the one in the manifest')


@pytest.mark.parametrize('size', (0, 1, 100))
def test_truncated_manifests(folder, size):
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:size])
    refused(folder, 'is no manifest, or only a part of one: it is not JSON')


def test_altered_manifests(folder):
    change(folder, signed=False, content={'word': 'another'})
    refused(folder, 'the manifest was altered')


def test_newer_versions(folder):
    change(folder, version=VERSION + 1)
    refused(folder, f'has version {VERSION + 1} of the format, but only versions up to {VERSION}')


@pytest.mark.parametrize('version', (None, True, '1', 0))
def test_what_is_no_version(folder, version):
    change(folder, version=version)
    refused(folder, 'is no number of a version')


def test_other_kinds_and_formats(folder):
    refused(folder, "a bundle of 'things', not of 'cells'", kind='cells')
    change(folder, format='another')
    refused(folder, 'this is no manifest: it has no "format"')


@pytest.mark.parametrize('name', ('../array.npy', 'a/b', '..', NAME, 'a\\b', ''))
def test_names_stay_in_the_folder(folder, name):
    change(folder, files={name: {'size': 0, 'sha256': ''}})
    refused(folder, 'is no name of a file in the bundle')


@pytest.mark.parametrize('entry', (None, 3, {}, {'size': 'many'}, {'size': None, 'sha256': 1}))
def test_entries_of_files_that_make_no_sense(folder, entry):
    change(folder, files={'array.npy': entry})
    refused(folder, r'array\.npy')


def test_arrays_without_pickle(tmp_path):
    with BundleWriter(tmp_path / 'bundle', 'things') as bundle:
        np.save(tmp_path / 'evil.npy', np.array([{}], object), allow_pickle=True)
        bundle.add('evil.npy', (tmp_path / 'evil.npy').read_bytes())
    read = read_bundle(tmp_path / 'bundle', 'things')
    with pytest.raises(edb.BundleError, match=r'evil\.npy is no array: .*allow_pickle'):
        read.array({'file': 'evil.npy', 'shape': [1], 'dtype': 'object'})


def test_arrays_of_other_shapes(folder):
    bundle = read_bundle(folder, 'things')
    with pytest.raises(edb.BundleError, match='is float32.*but the manifest says float64'):
        bundle.array({'file': 'array.npy', 'shape': [6], 'dtype': 'float64'})
    with pytest.raises(edb.BundleError, match='the manifest has no file'):
        bundle.array({'file': 'other.npy', 'shape': [6], 'dtype': 'float32'})
