"""Pages are short and in plain English. `tests.support.prose` has the limits."""

import re

import pytest

from tests.support import prose

TERMS = 30
ENTRIES_OF_CHANGES = 80
KINDS_OF_CHANGES = {'Added', 'Changed', 'Fixed', 'Removed'}


def test_pages_are_short():
    assert not [*prose.too_long()]


def test_sentences_are_short():
    assert not [*prose.hard_to_read()]


def test_guides_are_easy_to_read():
    pytest.importorskip('textstat', reason='needs textstat, of the group docs on Python 3.11')
    assert not [*prose.not_easy()]


def test_proselint_finds_nothing():
    pytest.importorskip('proselint', reason='needs proselint, of the group docs on Python 3.11')
    assert not [*prose.linted()]


def test_what_is_hard_to_read_is_found(tmp_path, monkeypatch):
    page = tmp_path / 'page.md'
    page.write_text(
        f'# A title\n\nShort `code that counts once`, with 0.5. A {"word " * 40}end.\n\n'
        f'```sh\n{"word " * 50}\n```\n\n| a | {"cell " * 41}|\n\n- An item.\n',
        encoding='utf-8',
    )
    monkeypatch.setattr(prose, 'ROOT', tmp_path)
    monkeypatch.setattr(prose, 'PAGES', [page])
    assert [*map(prose.length, prose.sentences(prose.paragraphs(page)))] == [4, 42, 2]
    found = [told.partition(' words: ')[0] for told in prose.hard_to_read()]
    assert found == ['page.md: 42', 'page.md: 41']


def test_glossary_has_few_terms_and_their_relatives():
    page = (prose.ROOT / 'docs/glossary.md').read_text(encoding='utf-8')
    terms = [line for line in page.splitlines() if line.startswith('- **')]
    assert 0 < len(terms) <= TERMS
    assert terms == sorted(terms, key=lambda term: term.split('**')[1])
    assert all(re.search(r'\*(DyNet|JAX|PyTorch): .*\*$', term) for term in terms)


def test_changelog_has_few_entries_under_known_headings():
    lines = (prose.ROOT / 'CHANGELOG.md').read_text(encoding='utf-8').splitlines()
    assert sum(line.startswith('- ') for line in lines) <= ENTRIES_OF_CHANGES
    kinds = {line[4:] for line in lines if line.startswith('### ')}
    assert kinds <= KINDS_OF_CHANGES
