"""What the documentation's site is made of: MkDocs' hooks (``mkdocs.yml``, ``scripts/docs.sh``)."""

import re
import subprocess
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK_LINK = re.compile(r'href="(?!\w+:)([^"#]+\.md)(?=["#])')
FOOTNOTE = re.compile(r'(?:\.\. )?(\[\d\])_?(?![\w(])')
README = re.compile(r'README\.md$')
LINK = re.compile(r'(?<=\]\()(?!\w+:)([^)#\s]+)')


@event_priority(100)  # before the plugin that makes pages of notebooks
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


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Links in notebooks, which MkDocs neither resolves nor checks; marks of footnotes, which are
    numpydoc's."""
    if not page.file.src_uri.endswith('.ipynb'):
        return FOOTNOTE.sub(r'\1', output)

    def resolved(match: 're.Match[str]') -> str:
        if not (ROOT / page.file.src_uri).parent.joinpath(match[1]).is_file():
            raise PluginError(f'{page.file.src_uri} has a link to {match[1]}, which is not there')
        return f'href="{README.sub("index.md", match[1])[:-3]}.html'

    return NOTEBOOK_LINK.sub(resolved, output)


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
