"""Make the embedded sample: tagged sentences and a word list, from a small grammar.

    python example/lattice/make_sample.py              # writes example/lattice/sample

People (with family and given names, or by what they are), places, and institutions named after
places, in sentences about where they are and what they do. Given names share their characters
with ordinary words, and words overlap (北京, 北京大学, 大学, 大学生, 学生), so that a lattice tells
more than its characters. The same seed gives the same files, byte for byte, with every version of
Python.
"""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional

from example.common.samples import Writer, run_maker, write_files

__all__ = ['SPLITS', 'Word', 'make_sentences', 'word_list', 'write_sample']

SPLITS = {'train': 160, 'dev': 40, 'test': 40}

FAMILY_NAMES = '王 李 张 刘 陈 杨 黄 赵 吴 周'.split()
GIVEN_NAMES = '明 华 京 海 文 学 生 山 江 安 平 国 新 天 云 春'.split()
PLACES = '北京 上海 南京 天津 海南 江西 山东 云南 长春 西安'.split()
INSTITUTIONS = '大学 医院 银行 公司 中学 新闻社'.split()
SIGHTS = '长江 黄山 天山 西湖 云台山 春江'.split()
PEOPLE = '学生 大学生 医生 老师 同学 朋友 记者 经理'.split()
VERBS = '喜欢 看见 认识 帮助 等'.split()
DOINGS = '学习 工作 生活 看海 爬山 学中文 看新闻 开会'.split()
TIMES = '今天 明天 春天 上学时 平时 天天'.split()
PARTICLES = '在 的 和 去 了 说 ， 。 ！'.split()
MORE_WORDS = (
    '学文 海上 中文 国文 天生 明文 生平 平安 文明 上学 江山 新生 安生 云海 新闻 开会了'.split()
)


class Word(NamedTuple):
    """A word, and the kind of entity it names; '' for none."""

    text: str
    kind: str = ''


class Grammar(Writer):
    """Draw sentences from the grammar."""

    def sentence(self) -> list[Word]:
        words = [Word(self.pick(TIMES))] if self.chance(0.4) else []
        words += self.clause()
        if self.chance(0.15):
            words += [Word('，'), *self.clause()]
        return words + [Word('！' if self.chance(0.2) else '。')]

    def clause(self) -> list[Word]:
        who = self.person()
        if self.chance(0.25):
            who += [Word('和'), *self.person()]
        if self.chance(0.2):
            return who + [Word('说'), *self.person(), Word('去'), self.place(), Word('了')]
        if self.chance(0.4):
            return who + [Word(self.pick(VERBS)), *self.person()]
        return who + [Word('在'), self.place(), Word(self.pick(DOINGS))]

    def person(self) -> list[Word]:
        if self.chance(0.6):
            name = self.pick(FAMILY_NAMES) + self.pick(GIVEN_NAMES)
            if self.chance(0.6):
                name += self.pick(GIVEN_NAMES)
            return [Word(name, 'PER.NAM')]
        title = Word(self.pick(PEOPLE), 'PER.NOM')
        return [self.place(), Word('的'), title] if self.chance(0.3) else [title]

    def place(self) -> Word:
        if self.chance(0.25):
            return Word(self.pick(SIGHTS), 'LOC.NAM')
        place = self.pick(PLACES)
        if self.chance(0.5):
            return Word(place + self.pick(INSTITUTIONS), 'ORG.NAM')
        return Word(place, 'GPE.NAM')


def make_sentences(count: int, seed: str) -> list[list[Word]]:
    """Return random sentences as lists of words."""
    grammar = Grammar(seed)
    return [grammar.sentence() for _ in range(count)]


def word_list() -> list[str]:
    """Return all words that a dictionary would have: no names of people, no institutions of a place
    except universities."""
    words = [
        *PLACES,
        *INSTITUTIONS,
        *SIGHTS,
        *PEOPLE,
        *VERBS,
        *DOINGS,
        *TIMES,
        *PARTICLES,
        *MORE_WORDS,
        *(place + '大学' for place in PLACES),
    ]
    return sorted(set(words))


def write_sample(directory, splits=None, seed: int = 0) -> None:
    """Write the splits and the word list into a directory."""
    contents = {
        f'sample.{split}': ''.join(map(_lines, make_sentences(count, f'{seed} {split}')))
        for split, count in (splits or SPLITS).items()
    }
    contents['words.txt'] = ''.join(f'{word} 1 x\n' for word in word_list())
    write_files(directory, contents)


def _lines(sentence: Sequence[Word]) -> str:
    lines = []
    for text, kind in sentence:
        for position, char in enumerate(text):
            tag = f'{"I" if position else "B"}-{kind}' if kind else 'O'
            lines.append(f'{char}{position}\t{tag}\n')
    return ''.join(lines) + '\n'


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_maker(
        write_sample,
        Path(__file__).with_name('sample'),
        'Make a sample in the form of Weibo NER.',
        arguments,
    )


if __name__ == '__main__':
    sys.exit(main())
