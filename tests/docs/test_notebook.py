"""The tutorial runs from top to bottom."""

from pathlib import Path

import pytest

pytest.importorskip('nbclient', reason='needs nbclient, of the group test')
nbformat = pytest.importorskip('nbformat')
pytest.importorskip('ipykernel')

from tests.support.processes import HANG, run_python  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / 'example' / 'tutorial.ipynb'
EXECUTE = """
import sys
import nbclient, nbformat

source, target, folder, hang = sys.argv[1:]
notebook = nbformat.read(source, as_version=4)
resources = {'metadata': {'path': folder}}
nbclient.NotebookClient(notebook, timeout=float(hang), resources=resources).execute()
nbformat.write(notebook, target)
"""


def outputs(notebook):
    """Kinds of what each cell of code shows; what it prints may come in several pieces."""
    return [
        {kind for output in cell.outputs for kind in output.get('data', [output.get('name')])}
        for cell in notebook.cells
        if cell.cell_type == 'code'
    ]


def test_tutorial_runs_and_shows_what_it_did(tmp_path):
    target = tmp_path / 'executed.ipynb'
    done = run_python(
        '-c', EXECUTE, TUTORIAL, target, TUTORIAL.parent, str(HANG), PYTHONPATH=str(ROOT)
    )
    assert done.returncode == 0, done.stderr[-5000:]
    kept, made = (nbformat.read(path, as_version=4) for path in (TUTORIAL, target))
    assert outputs(made) == outputs(kept)
    text = target.read_text()
    assert 'In[3]:' in text and 'ipykernel_' not in text  # explanations name cells, not files
    assert sum('image/svg+xml' in shown for shown in outputs(made)) == 3
