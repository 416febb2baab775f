"""Public docstrings have the sections and parameters that numpydoc asks for; examples run."""

import doctest
import inspect

import pytest

from gluon_edbatch import schedule

validate = pytest.importorskip(
    'numpydoc.validate', reason='needs numpydoc, of the group docs on Python 3.11'
)
pytest.importorskip('sybil', reason='needs Sybil, of the group test on Python 3.11')

from tests.support.cases import in_one_test  # noqa: E402
from tests.support.docstring_names import names  # noqa: E402
from tests.support.pages import execute  # noqa: E402
from tests.support.public import MODULES  # noqa: E402

# Sections: known, in order, underlined; a summary. Parameters: there, all, in order, with a type
# and what they mean. How sentences begin and end is the style's (CONTRIBUTING.md), and ruff's.
SECTIONS = {'GL03', 'GL05', 'GL06', 'GL07', 'GL08', 'GL10', 'SS01'}
PARAMETERS = {'PR01', 'PR02', 'PR03', 'PR04', 'PR06', 'PR07', 'PR10'}
# What others prescribe: Gluon its blocks and handlers, NumPy-like arrays their methods.
PRESCRIBED = {
    'hybrid_forward',
    'fit_batch',
    'evaluate_batch',
    'batch_end',
    'epoch_end',
    'train_end',
}
# What schedulers of the package are built on; their sentences name the arguments.
INNER = {'Frontier', 'Run'}
# What is told once, in the protocol that these are of.
OF_PROTOCOLS = {'schedule': schedule.Scheduler, 'follow': schedule.StateEncoding}


def public():
    """Name, whether it is in an ``__all__`` itself, of all functions, classes and methods."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                yield f'{module.__name__}.{name}', value
            if inspect.isclass(value):
                for method, defined in vars(value).items():
                    if not method.startswith('_') and is_method(defined):
                        yield f'{module.__name__}.{name}.{method}', defined


def is_method(value):
    return inspect.isroutine(value) or isinstance(value, (staticmethod, classmethod, property))


def asked(name, value):
    """Codes that a docstring has to pass."""
    *_, owner, last = name.split('.')
    if last in PRESCRIBED or owner in {'LazyArray', *INNER} or inherits(name):
        return SECTIONS
    if last in OF_PROTOCOLS and owner != OF_PROTOCOLS[last].__name__:
        return SECTIONS
    if inspect.isclass(value) and not is_made_by_users(value):
        return SECTIONS | PARAMETERS - {'PR01', 'PR02'}
    if inspect.isfunction(value) and ('Parameters\n' in value.__doc__ or is_of_a_module(owner)):
        return SECTIONS | PARAMETERS | {'RT01'}  # what a short method gives, its sentence says
    return SECTIONS | PARAMETERS


def is_of_a_module(owner):
    return owner in {module.__name__.rpartition('.')[2] for module in MODULES}


def is_made_by_users(kind):
    """Others are given to them, and tell their attributes; compiled ones have no signature."""
    return 'Parameters\n' in (kind.__doc__ or '') and kind.__name__ not in INNER


def inherits(name):
    """Whether a method is one that a class outside of the package has: it is documented there."""
    *path, last = name.split('.')
    owner = validate.Validator._load_obj('.'.join(path))
    return inspect.isclass(owner) and any(
        last in vars(base)
        for base in owner.__mro__
        if not base.__module__.startswith('gluon_edbatch')
    )


@in_one_test('name, value', list(public()), ids=lambda what: what if isinstance(what, str) else '')
def test_docstring(name, value):
    found = dict(validate.validate(name)['errors'])
    wrong = {code: told for code, told in found.items() if code in asked(name, value)}
    assert not wrong


def with_examples():
    """Names and examples of docstrings; `LazyArray` has some of MXNet's."""
    found = {inspect.getdoc(value): name for name, value in public() if '.LazyArray.' not in name}
    parser = doctest.DocTestParser()
    return {
        name: parser.get_examples(text) for text, name in found.items() if text and '>>>' in text
    }


@in_one_test('name, examples', with_examples().items(), ids=list(with_examples()))
def test_examples_run(name, examples, tmp_path, monkeypatch):
    """(None says what it prints.)"""
    monkeypatch.chdir(tmp_path)
    given = names()
    for number, example in enumerate(examples):
        assert not example.want
        execute(example.source, f'{name}, example {number}', given)
