"""The prose of the documentation: how long, how easy to read, and what proselint says of it.

    python -m tests.support.prose

prints a line for each page (its words as ``wc -w`` counts them, mean and greatest length of its
sentences, its Flesch reading ease) and what goes beyond the limits below. The exit status is 1 if
anything does. Code, markup and tables are no prose; but cells of tables have sentences, too.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[2]

# Words, as `wc -w` counts them, and words of a sentence.
WORDS_OF_README = 600
WORDS_OF_DOCS = 22_000
WORDS_OF_A_GUIDE = 600
WORDS_OF_A_DECISION = 150
MEAN_SENTENCE = 20
LONGEST_SENTENCE = 40
READING_EASE = 50  # of guides, in the median

DOCS = sorted(ROOT.glob('docs/**/*.md'))
DECISIONS = sorted(ROOT.glob('docs/decisions/0*.md'))
GUIDES = [
    *sorted(ROOT.glob('docs/guides/*.md')),
    *(ROOT / 'docs' / f'{name}.md' for name in ('distributed', 'ecosystem', 'programs')),
]
PAGES = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', ROOT / 'CHANGELOG.md', *DOCS]

COMMENT = re.compile(r'<!--.*?-->', re.DOTALL)
FENCE = re.compile(r'^( *)```.*?^\1```$', re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r'!\[[^]]*\]\([^)]*\)')
LINK = re.compile(r'\[((?:[^][]|\[[^]]*\])*)\]\([^)]*\)')
CODE = re.compile(r'``.+?``|`[^`]+`')
TAG = re.compile(r'<[^>]+>')
ITEM = re.compile(r' *(?:[-*]|\d+\.) +')
END = re.compile(r'(?<=[.!?])["*)]*\s+(?=["*(]*[A-Z0-9])')
ABBREVIATED = re.compile(r'\b(e\.g|i\.e|et al|etc)\.')
WORD = re.compile(r"\w[\w'.,/-]*")


def name(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def words(page: Path) -> int:
    """Return how many words a page has, code included."""
    return len(page.read_text(encoding='utf-8').split())


def _plain(text: str) -> str:
    """Return a text in which code is one word, and links are what they show."""
    text = TAG.sub('', LINK.sub(r'\1', CODE.sub('Code', IMAGE.sub('', text))))
    return ABBREVIATED.sub(r'\1', text.replace('*', ''))


def _without_code(page: Path) -> str:
    return FENCE.sub('', COMMENT.sub('', page.read_text(encoding='utf-8')))


def paragraphs(page: Path) -> list[str]:
    """Return the paragraphs and items of lists in a page of Markdown."""
    found: list[list[str]] = [[]]
    for line in _without_code(page).splitlines():
        if line.lstrip().startswith(('#', '|', ':::', 'options:')) or not line.strip():
            found.append([])
        elif ITEM.match(line):
            found.append([ITEM.sub('', line, count=1)])
        else:
            found[-1].append(line.strip())
    return [text for lines in found if (text := _plain(' '.join(lines)).strip())]


def cells(page: Path) -> list[str]:
    """Return what stands in the cells of a page's tables."""
    rows = [line for line in _without_code(page).splitlines() if line.startswith('|')]
    texts = [_plain(cell) for row in rows for cell in CODE.sub('Code', row).split('|')]
    return [text.strip() for text in texts if text.strip(' :-')]


def sentences(texts: list[str]) -> list[str]:
    """Return the sentences of some texts. Each text ends one."""
    return [one for text in texts for one in END.split(text) if WORD.search(one)]


def length(sentence: str) -> int:
    """Return how many words a sentence has."""
    return len(WORD.findall(sentence))


def mean_sentence(page: Path) -> float:
    """Return the mean length of the sentences in a page's paragraphs, 0 if there are none."""
    return mean(map(length, sentences(paragraphs(page)) or ['']))


def reading_ease(page: Path) -> float:
    """Return the Flesch reading ease of a page's paragraphs. Pupils of 15 to 18 years read 50.

    textstat counts syllables. Its own count of sentences takes the point of 0.65 for an end.
    """
    import textstat

    texts = paragraphs(page)
    if not texts:
        return 100.0
    syllables = textstat.syllable_count(' '.join(texts))
    count = sum(map(length, sentences(texts)))
    return 206.835 - 1.015 * mean_sentence(page) - 84.6 * syllables / count


def too_long() -> Iterator[str]:
    """Yield what has more words than it may have."""
    limits = [(ROOT / 'README.md', WORDS_OF_README)]
    limits += [(page, WORDS_OF_A_GUIDE) for page in GUIDES]
    limits += [(page, WORDS_OF_A_DECISION) for page in DECISIONS]
    for page, limit in limits:
        if words(page) > limit:
            yield f'{name(page)} has {words(page)} words, and may have {limit}'
    count = sum(map(words, DOCS))
    if count > WORDS_OF_DOCS:
        yield f'docs/ has {count} words, and may have {WORDS_OF_DOCS}'


def hard_to_read() -> Iterator[str]:
    """Yield pages with long sentences, and long sentences."""
    for page in PAGES:
        if mean_sentence(page) > MEAN_SENTENCE:
            yield f'{name(page)}: sentences have {mean_sentence(page):.1f} words in the mean'
        for one in sentences(paragraphs(page) + cells(page)):
            if length(one) > LONGEST_SENTENCE:
                yield f'{name(page)}: {length(one)} words: {one}'


def not_easy() -> Iterator[str]:
    """Yield the reading ease of guides if it is too low. Needs textstat."""
    ease = median(map(reading_ease, GUIDES))
    if ease < READING_EASE:
        yield f'guides have a reading ease of {ease:.0f} in the median, not {READING_EASE}'


def linted() -> Iterator[str]:
    """Yield what proselint finds, with the settings in `.proselintrc.json`. Needs proselint."""
    from proselint.checks import __register__
    from proselint.config import load_from
    from proselint.registry import CheckRegistry
    from proselint.tools import LintFile

    CheckRegistry().register_many(__register__)
    settings = load_from(ROOT / '.proselintrc.json')
    for page in PAGES:
        text = '\n\n'.join(paragraphs(page))
        if text:
            for result in LintFile(name(page), text).lint(settings):
                yield f'{name(page)}: {result.check_result.message}'


def main() -> int:
    """Print figures and problems; return the exit status."""
    print(' words   mean  most  ease')
    for page in PAGES:
        most = max(map(length, sentences(paragraphs(page) + cells(page)) or ['']))
        ease = reading_ease(page)
        print(f'{words(page):6} {mean_sentence(page):6.1f} {most:5} {ease:5.0f}  {name(page)}')
    found = [*too_long(), *hard_to_read(), *not_easy(), *linted()]
    print(*found, sep='\n', end='\n' if found else '')
    return bool(found)


if __name__ == '__main__':
    sys.exit(main())
