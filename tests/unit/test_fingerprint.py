"""What a block's calls read is looked at again whenever any of it was changed, and only then."""

import gc
import types
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.subgraph import fingerprint as module
from gluon_edbatch.subgraph.fingerprint import containers, fingerprint
from tests.support.cases import in_one_test

SCALE = 2.0
TABLE = {'slope': 0.1}
_ABSENT = object()


class Settings:
    """An object whose attributes a block reads."""

    offset = 1

    def __init__(self):
        self.scale = 3


class Slotted:
    """An object with a slot in place of a dict."""

    __slots__ = ('scale',)


def helper(x, factor=2):
    """A function that a block calls."""
    return x * factor * SCALE


class Scaled(gluon.HybridBlock):
    """A block that reads something of each sort."""

    width = 4

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.settings, self.table = Settings(), {'a': 1}
        with self.name_scope():
            self.first = gluon.nn.Dense(3, in_units=3)
            self.second = gluon.nn.Dense(3, in_units=3)
            self.weight = self.params.get('weight', shape=(3,))

    def hybrid_forward(self, F, x, weight, slope=0.5):
        """Reads variables, too."""
        for child in self._children.values():
            x = child(x)
        scale, offset = self.settings.scale, self.settings.offset
        return helper(x) * scale + offset + TABLE['slope'] * self.table['a'] * slope * self.width


class Listed(Scaled):
    """One whose list may be changed in place, which no version tells."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.steps = [1]


class Other(Scaled):
    """A class that a block may get instead of its own."""

    width = 9


def set_offset(block):
    Settings.offset = 5


def replace_dict(block):
    block.__dict__ = {**block.__dict__, 'width': 9}


def replace_child_dict(block):
    block.first.__dict__ = {**block.first.__dict__, '_units': 9}


def replace_defaults(block):
    helper.__defaults__ = (7,)


def set_function_attribute(block):
    helper.scale = 3


CHANGES = {
    'attribute': lambda block: setattr(block, 'width', 5),
    'new attribute': lambda block: setattr(block, 'depth', 5),
    'attribute gone': lambda block: block.__dict__.pop('table'),
    'past __setattr__': lambda block: block.__dict__.update(width=7),
    'all attributes': replace_dict,
    'all attributes of a child': replace_child_dict,
    'attribute of a child': lambda block: setattr(block.first, '_units', 7),
    'child': lambda block: setattr(block, 'first', gluon.nn.Dense(3, in_units=3)),
    'another child': lambda block: block.register_child(gluon.nn.Dense(3, in_units=3)),
    'order of children': lambda block: block._children.move_to_end('first'),
    'parameter': lambda block: block._reg_params.update(
        weight=gluon.Parameter('other', shape=(3,))
    ),
    'hook of a child': lambda block: block.first.register_forward_hook(lambda *_: None),
    'class': lambda block: setattr(block, '__class__', Other),
    'attribute of the class': lambda block: setattr(Scaled, 'width', 11),
    'attribute of an object': lambda block: setattr(block.settings, 'scale', 8),
    'class of an object': set_offset,
    'item of a dict': lambda block: block.table.update(a=2),
    'item of a global dict': lambda block: TABLE.update(slope=0.3),
    'global': lambda block: globals().update(SCALE=5.0),
    'global function': lambda block: globals().update(helper=lambda x: x),
    'defaults of a function': replace_defaults,
    'attribute of a function': set_function_attribute,
    'method': lambda block: setattr(
        Scaled, 'hybrid_forward', lambda self, F, x, weight: x * weight
    ),
}


@contextmanager
def put_back():
    """Variables and classes are afterwards as before."""
    variables, table, defaults = dict(globals()), dict(TABLE), helper.__defaults__
    attributes = [(cls, dict(vars(cls))) for cls in (Scaled, Settings)]
    function = helper
    try:
        yield
    finally:
        restore(variables, table, defaults, attributes, function)


def restore(variables, table, defaults, attributes, function):
    """Give variables and classes the values that they had."""
    globals().update(variables)
    TABLE.update(table)
    function.__defaults__ = defaults
    vars(function).clear()
    for cls, before in attributes:
        for name, value in before.items():
            if vars(cls).get(name, _ABSENT) is not value:
                setattr(cls, name, value)


@pytest.fixture(autouse=True)
def as_before():
    """Restore variables and classes after a test."""
    with put_back():
        yield


@in_one_test('kind', [Scaled, Listed])
@in_one_test('name', CHANGES)
def test_every_change_is_seen(name, kind):
    block = kind()
    before = fingerprint(block)
    assert fingerprint(block) == before
    with put_back():
        CHANGES[name](block)
        assert fingerprint(block) != before


def test_what_no_version_tells_is_seen():
    block = Listed()
    before = fingerprint(block)
    block.steps.append(2)
    assert fingerprint(block) != before
    block.array = np.zeros(2)
    before = fingerprint(block)
    block.array[0] = 1
    assert fingerprint(block) != before
    block.settings.scale = Slotted()
    block.settings.scale.scale = 1
    before = fingerprint(block)
    assert fingerprint(block) == before


def test_a_closure_is_looked_at_again():
    scale = 2

    class Closed(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * scale

    block = Closed()
    before = fingerprint(block)
    scale = 3
    assert fingerprint(block) != before


def test_unchanged_is_not_looked_at_again():
    if not edb.COMPILED:
        pytest.skip('Python sees no versions')
    block = Scaled()
    assert fingerprint(block) is fingerprint(block)
    assert containers(block) == [block.table]
    block.unrelated = 1
    assert fingerprint(block) is fingerprint(block)
    listed = Listed()
    assert fingerprint(listed) is not fingerprint(listed)


def test_nothing_is_kept_of_blocks_that_are_gone():
    block = Scaled()
    fingerprint(block)
    reference, number = weakref.ref(block), id(block)
    assert (number in module._kept) == edb.COMPILED
    del block
    gc.collect()
    assert reference() is None and number not in module._kept


class Tanh(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x)


@pytest.mark.parametrize('block, name', [(Scaled, 'UNRELATED'), (Tanh, 'tanh')])
def test_other_variables_change_nothing(monkeypatch, block, name):
    """A variable counts if the code reads it, not if it has the name of an attribute there."""
    block = block()
    before = fingerprint(block)
    monkeypatch.setitem(globals(), name, types.SimpleNamespace())
    assert fingerprint(block) == before
