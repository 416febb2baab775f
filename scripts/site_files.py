"""What the documentation's site is made of: MkDocs' hooks (``mkdocs.yml``, ``scripts/docs.sh``)."""

import re
import subprocess
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r'(?<=\]\()(?!\w+:)([^)#\s]+)')


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's own files at their own paths, beside what the theme brings."""
    own = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*own, *(_file(name, config) for name in _known())])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to folders lead to their README, as where the repository is read."""
    folder = PurePosixPath(page.file.src_uri).parent

    def resolved(match: 're.Match[str]') -> str:
        readme = f'{match[1].rstrip("/")}/README.md'
        found = files.get_file_from_path(normpath(str(folder / readme)))
        return match[1] if found is None else readme

    return LINK.sub(resolved, markdown)


def _file(name: str, config: MkDocsConfig) -> File:
    return File(name, str(ROOT), config.site_dir, config.use_directory_urls)


def _known() -> 'list[str]':
    """Files that git knows, or would add."""
    listed = subprocess.run(
        ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [name for name in listed.split('\0') if _belongs(name)]


def _belongs(name: str) -> bool:
    return bool(name) and not name.startswith('tests/') and (ROOT / name).is_file()
