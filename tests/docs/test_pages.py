"""Programs in README and the documentation's pages run, and print what the pages say."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gluon_edbatch as edb
from gluon_edbatch_core.serving.folder import load_folder
from tests.support.jobs import run_job
from tests.support.processes import run_python
from tests.support.public import MODULES

pytest.importorskip('sybil', reason='needs Sybil, of the group test on Python 3.11')

from tests.support.pages import run_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page
    for page in [ROOT / 'README.md', *sorted(ROOT.glob('docs/**/*.md'))]
    if '\n```python\n' in page.read_text(encoding='utf-8')
]


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page(page), 'all of its programs are skipped'


def test_first_program_of_readme_runs_as_it_is_copied(tmp_path):
    """README's program runs in an empty folder, away from the checkout, and everything is
    batched."""
    page = (ROOT / 'README.md').read_text(encoding='utf-8')
    assert page.count('invisible-code-block') == 0
    program = tmp_path / 'first.py'
    program.write_text(re.search(r'```python\n(.*?)```', page, re.DOTALL).group(1), 'utf-8')
    done = run_python(program, cwd=tmp_path, PYTHONPATH=str(Path(edb.__file__).parents[1]))
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.match(r'\d+ calls of 4 types in (\d+) batches \(fsm; lower bound \1\)', done.stdout)


def test_measurement_of_the_first_program_runs():
    done = run_python('-m', 'benchmarks.readme', '--rounds', '1', '--trees', '4', cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r'^(?:batched|eager) \w+: best \d+', done.stdout, re.MULTILINE)) == 4


def test_what_a_page_gets_wrong_is_found(tmp_path):
    page = tmp_path / 'page.md'
    page.write_text('```python\nprint(1)\n```\n```text\n2\n```\n', encoding='utf-8')
    with pytest.raises(AssertionError, match=r'page\.md:4 says that this is printed'):
        run_page(page)
    page.write_text('```python\n\n1 / 0\n```\n', encoding='utf-8')
    with pytest.raises(ZeroDivisionError) as error:
        run_page(page)
    assert error.traceback[-1].lineno + 1 == 3  # the page's own line


def test_picture_of_a_minibatch_is_what_the_package_does(tmp_path):
    drawn = tmp_path / 'minibatch.svg'
    done = run_python('-m', 'benchmarks.draw_minibatch', str(drawn), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    made, kept = (_words(path) for path in (drawn, ROOT / 'docs/how-it-works/minibatch.svg'))
    assert made == kept and len(made) > 50


def test_picture_of_the_history_has_its_tables(tmp_path):
    drawn = tmp_path / 'history.svg'
    done = run_python('-m', 'benchmarks.draw_history', str(drawn), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    made, kept = (_comments(path) for path in (drawn, ROOT / 'docs/history.svg'))
    assert made == kept and 'treelstm-sst' in made and '0.2.0 beside 0.1.0' in made


def _comments(picture):
    """Texts of a picture by matplotlib, which draws letters and names the text."""
    return re.findall(r'<!-- (.*?) -->', picture.read_text(encoding='utf-8'))


def _words(picture):
    """Texts of an SVG file, whose lines differ between versions of matplotlib."""
    texts = ElementTree.parse(picture).getroot().iter('{http://www.w3.org/2000/svg}text')
    return [text.text for text in texts]


@pytest.mark.parametrize('module', MODULES, ids=lambda module: module.__name__)
def test_reference_has_all_public_names(module):
    text = '\n'.join(page.read_text(encoding='utf-8') for page in ROOT.glob('docs/reference/*.md'))
    shown = set(re.findall(r'^::: [\w.]*\.(\w+)$', text, re.MULTILINE))
    named = set(re.findall(r'`(?:gluon_edbatch|edb)\.(\w+)`', text))  # modules, and COMPILED
    assert set(module.__all__) - shown <= named


BEFORE_DISTRIBUTED = """
import gluon_edbatch as edb
from mxnet import autograd, gluon

class Sum(edb.AutoBatchMixin, gluon.Block):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(9, 2)
    def forward(self, words):
        return edb.add_n([self.embed(word) for word in words])

def build():
    net = Sum()
    net.initialize()
    return net

samples, labels = [[1, 2], [3], [4, 5, 6], [7]] * 40, [0, 1, 1, 0] * 40
loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
"""


def test_program_of_the_distributed_page_trains_on_two_workers_and_goes_on(tmp_path):
    """(Which is skipped above, as it needs the launcher.)"""
    page = (ROOT / 'docs/distributed.md').read_text(encoding='utf-8')
    block = re.search(r'```python\n(from gluon_edbatch\.data.*?)```', page, re.DOTALL).group(1)
    told = "        print('trained', epoch)\n"
    text = f'{BEFORE_DISTRIBUTED}{block}{told}'
    assert text.count('range(first, 10)') == 1
    program = tmp_path / 'program.py'
    for end, expected in (2, ['0', '0', '1', '1']), (3, ['2', '2']):
        program.write_text(text.replace('range(first, 10)', f'range(first, {end})'), 'utf-8')
        done = run_job('-n', '2', '-s', '1', sys.executable, program, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        assert sorted(re.findall(r'^trained (\d)$', done.stdout, re.MULTILINE)) == expected


def test_folder_of_the_serving_page_is_served(tmp_path):
    """(Which is skipped above, as it needs pydantic.)"""
    pydantic = pytest.importorskip('pydantic', reason='pydantic comes with the extra serve')
    page = (ROOT / 'docs/serving.md').read_text(encoding='utf-8')
    (block,) = re.findall(r'```python\n(from typing import List.*?)```', page, re.DOTALL)
    (tmp_path / 'model.py').write_text(block, encoding='utf-8')
    namespace = {}
    exec(block, namespace)
    net = namespace['Sum']()
    net.initialize('ones')
    net.save_parameters(str(tmp_path / 'net.params'))
    served = load_folder(tmp_path)
    with edb.serving.Engine(
        served.predict, warm_up=list(map(served.read, served.warm_up))
    ) as engine:
        answer = served.write(engine.future(served.read([4, 1])).result())
    assert answer == [2.0] * 4
    with pytest.raises(ValueError, match='less than or equal to 9'):
        pydantic.TypeAdapter(served.request).validate_python([10])
