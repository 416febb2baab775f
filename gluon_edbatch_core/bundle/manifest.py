"""A checked folder of files with a manifest of each, written completely or not at all.

``manifest.json`` has the format and its version, the kind of bundle, sizes and digests of all other
files, the kind's own data (``content``), and a digest of itself. It is data: nothing of a bundle is
executed, and arrays are read without pickle.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ..errors import BundleError, EdbError
from ..short_repr import brief

FORMAT, VERSION, NAME = 'gluon_edbatch bundle', 1, 'manifest.json'
_LARGEST = 1 << 28  # bytes of a manifest


class BundleWriter:
    """Write a bundle to a temporary folder, and move it in place when it is complete. It replaces
    an existing bundle; `content` is the manifest's own data, plain JSON. Raises BundleError if the
    folder holds something other than a bundle."""

    def __init__(self, folder: Union[str, Path], kind: str) -> None:
        self.content: dict[str, Any] = {}
        self._folder, self._kind = Path(folder), kind
        self._part = self._folder.with_name(f'{self._folder.name}.{os.getpid()}.part')
        self._files: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> 'BundleWriter':
        folder = self._folder
        is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
        if not (is_free or (folder / NAME).is_file()):
            raise BundleError(f'{folder} is there, and is no bundle to be replaced')
        self._part.mkdir(parents=True)
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            shutil.rmtree(self._part, ignore_errors=True)

    def add(self, name: str, data: bytes) -> None:
        """Write a file of this name, which must not name a folder."""
        (self._part / name).write_bytes(data)
        self._files[name] = {'size': len(data), 'sha256': hashlib.sha256(data).hexdigest()}

    def data(self, name: str) -> bytes:
        """Return the bytes of the file that was added under a name."""
        return (self._part / name).read_bytes()

    def add_array(self, name: str, array: np.ndarray) -> dict[str, Any]:
        """Write an array in NumPy's format; return the entry for `Bundle.array`."""
        stream = io.BytesIO()
        in_order = np.ascontiguousarray(array).reshape(array.shape)  # which makes () to (1,)
        np.save(stream, in_order, allow_pickle=False)
        self.add(name, stream.getvalue())
        return {'file': name, 'shape': list(array.shape), 'dtype': array.dtype.name}

    def _finish(self) -> None:
        manifest = {
            'format': FORMAT,
            'version': VERSION,
            'kind': self._kind,
            'files': self._files,
            'content': self.content,
        }
        manifest['digest'] = _digest(manifest)
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
        (self._part / NAME).write_text(text + '\n', encoding='utf-8')
        if self._folder.exists():  # a folder cannot be renamed onto one that holds something
            older = self._part.with_suffix('.older')
            self._folder.rename(older)
            self._part.rename(self._folder)
            shutil.rmtree(older)
        else:
            self._part.rename(self._folder)


class Bundle(NamedTuple):
    """A bundle that was read and checked: the manifest's own data, and the contents of all
    files."""

    folder: Path
    content: dict[str, Any]
    files: dict[str, bytes]

    def array(self, entry: Mapping[str, Any]) -> np.ndarray:
        """Return the array of an entry from `BundleWriter.add_array`. Raise BundleError if its file
        is not in the table, not an array, or has another shape or dtype."""
        name = entry.get('file')
        if name not in self.files:
            raise BundleError(f'{self.folder}: the manifest has no file {brief(name)}')
        try:
            array = np.load(io.BytesIO(self.files[name]), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise BundleError(f'{self.folder / name} is no array: {error}') from None
        wanted = (entry.get('dtype'), entry.get('shape'))
        if (array.dtype.name, list(array.shape)) != wanted:
            raise BundleError(
                f'{self.folder / name} is {array.dtype.name}{array.shape}, but the manifest says '
                f'{wanted[0]}{brief(wanted[1])}'
            )
        return array


def read_bundle(folder: Union[str, Path], kind: str) -> Bundle:
    """Read and check a bundle of a kind; nothing of it is executed. Raise BundleError, which names
    the file, if something is missing, truncated, altered, of another kind, or of a newer
    version."""
    folder = Path(folder)
    manifest = _manifest(folder / NAME, kind)
    files = {}
    for name, entry in manifest['files'].items():
        files[name] = _checked(folder / name, entry)
    return Bundle(folder, manifest['content'], files)


def _manifest(path: Path, kind: str) -> dict[str, Any]:
    if not path.is_file():
        raise BundleError(f'{path.parent} is no bundle: it has no {path.name}')
    manifest = read_json(path, 'manifest', _LARGEST, BundleError)
    error_text = _error_text(manifest, kind)
    if error_text:
        raise BundleError(f'{path}: {error_text}')
    return manifest


def read_json(path: Path, kind: str, largest: int, error_type: type[EdbError]) -> Any:
    """Return the content of a JSON file of a kind. Raise an `error_type` for one of more than
    `largest` bytes, one that is not JSON, or one with numbers that JSON lacks, such as NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(f'{constant} is no number of a {kind}')

    if path.stat().st_size > largest:
        raise error_type(f'{path} is no {kind}: it has more than {largest} bytes')
    try:
        return json.loads(path.read_bytes().decode('utf-8'), parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise error_type(
            f'{path} is no {kind}, or only a part of one: it is not JSON ({error})'
        ) from None


def _error_text(manifest: Any, kind: str) -> str:
    """Return what is wrong with a manifest; empty if nothing is."""
    if not isinstance(manifest, dict) or manifest.get('format') != FORMAT:
        return f'this is no manifest: it has no "format": "{FORMAT}"'
    version = manifest.get('version')
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return f'the version is {brief(version)}, which is no number of a version'
    if version > VERSION:
        return (
            f'this bundle has version {version} of the format, but only versions up to {VERSION} '
            'can be read: it was written by a newer package, so install that, or export it again'
        )
    if manifest.get('digest') != _digest(manifest):
        return 'the manifest was altered: its digest is another one. Export the bundle again'
    if manifest.get('kind') != kind:
        return f'this is a bundle of {brief(manifest.get("kind"))}, not of {kind!r}'
    files, content = manifest.get('files'), manifest.get('content')
    if not isinstance(files, dict) or not isinstance(content, dict):
        return '"files" and "content" must be objects'
    for name, entry in files.items():
        if name in ('', '.', '..', NAME) or Path(name).name != name or '\\' in name:
            return f'{name!r} is no name of a file in the bundle'
        if not isinstance(entry, dict) or type(entry.get('size')) is not int:
            return f'{name!r} has no size in the table of files'
    return ''


def _checked(path: Path, entry: Mapping[str, Any]) -> bytes:
    if not path.is_file():
        raise BundleError(f'{path} is missing, which the manifest has')
    data, size = path.read_bytes(), entry['size']
    if len(data) != size:
        what = 'truncated' if len(data) < size else 'another file'
        raise BundleError(f'{path} is {what}: it has {len(data)} bytes, not {brief(size)}')
    if hashlib.sha256(data).hexdigest() != entry.get('sha256'):
        raise BundleError(f'{path} was altered: its digest is not the one in the manifest')
    return data


def _digest(manifest: Mapping[str, Any]) -> str:
    """Return the digest of a manifest without its own digest; indentation does not matter."""
    rest = {key: value for key, value in manifest.items() if key != 'digest'}
    text = json.dumps(rest, sort_keys=True, separators=(',', ':'))
    return hashlib.sha256(text.encode()).hexdigest()


def items_of(content: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return an entry of a manifest's content. Raise BundleError without one of this class."""
    value = content.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BundleError(f'"{name}" of the manifest must be {kind.__name__}, not {brief(value)}')
    return value


def shape_of(numbers: Any) -> Sequence[int]:
    """Return a shape in a manifest. Raise BundleError for other data."""
    if not isinstance(numbers, list) or not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in numbers
    ):
        raise BundleError(f'{brief(numbers)} in the manifest is no shape')
    return tuple(numbers)
