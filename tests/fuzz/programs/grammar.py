"""Expressions that random programs are made of, by kind; ``<row>`` stands for one more of a kind.

Each kind has leaves, which need no other expression, and the rest; so many times as likely as its
weight says. ``<row!>`` is a variable of the kind, and ``<row?>`` a variable or leaf.

=======  ===========================================================================
kind     what it is
=======  ===========================================================================
row      an array (1, 4)
fresh    a row that shares memory with nothing, so that it may be changed in place
own      a variable that has only ever been given such rows
mat      an array (3, 4)
vec      an array (4,)
one      an array (1,) or (1, 1)
num      a number, of the sample or known; not far from 0
int      an integer; the same
known    an integer from 0 to 3 that is known when the program is compiled
bool     a truth value
cond     what may stand behind if: a truth value, number, or an array of one element
block    a layer or other block of a row
text     'a' or 'b'
rows     a list of rows, at least one; nums: of numbers
table    a dict of rows, with keys 'a' and 'b' at least; counts: of numbers
pair     a tuple of a row and a number
states   a list of two rows
=======  ===========================================================================
"""

from typing import NamedTuple


class Kind(NamedTuple):
    """Expressions of a kind: weight and text."""

    leaves: list[tuple[float, str]]
    others: list[tuple[float, str]]


# Variables of which kinds may stand for one.
SUBKINDS: dict[str, tuple[str, ...]] = {
    'row': ('row', 'own'),
    'fresh': (),
    'int': ('int', 'known'),
    'num': ('num', 'int', 'known'),
}

_FRESH = [
    (4, 'self.dense(<row>)'),
    (2, 'self.layers[<known> % 3](<row>)'),
    (1, 'self.narrow(self.wide(<row>))'),
    (1, 'self.hybrid(<row>)'),
    (1, 'self.norm(<row>)'),
    (1, 'self.bn(<row>)'),
    (2, 'self.embed(mx.nd.array([<int> % 10]))'),
    (1, 'self.embed(<row>.argmax(axis=1))'),
    (1, 'self.lstm(<row>, [<row>, <row>])[0]'),
    (0.5, 'self.lstm(<row>, self.lstm.begin_state(batch_size=1))[0]'),
    (1, 'self.gru(<row>, [<row>])[0]'),
    (2, '<row>.tanh()'),
    (2, 'mx.nd.tanh(<row>)'),
    (1, 'mx.nd.sigmoid(<row>)'),
    (1, '<row>.relu()'),
    (1, 'mx.nd.softmax(<row>, axis=1)'),
    (0.5, '<row>.log_softmax()'),
    (0.5, 'mx.nd.square(<row>).tanh()'),
    (0.5, '<row>.clip(-1, 1)'),
    (0.5, 'mx.nd.clip(<row>, a_min=-0.5, a_max=0.5)'),
    (2, '(<row> + <row>)'),
    (2, '(<row> - <row>)'),
    (2, '(<row> * <row>).tanh()'),
    (1, '(<row> / (abs(<row>) + 1.0))'),
    (2, '(<row> * <num>).tanh()'),
    (1, '(<num> * <row>).tanh()'),
    (1, '(<row> + <num>)'),
    (1, '(<num> - <row>)'),
    (0.5, '(<row> / 2)'),
    (0.5, '(<num> / (<row> ** 2 + 1))'),
    (0.5, '(abs(<row>) ** 0.5)'),
    (0.3, '(<row> % 1.5)'),
    (1, '-<row>'),
    (1, 'abs(<row>)'),
    (1, 'mx.nd.maximum(<row>, <row>)'),
    (0.5, 'mx.nd.minimum(<row>, 0.5)'),
    (1, 'mx.nd.where(<row> > <row>, <row>, <row>)'),
    (0.5, '(<row> > <num>)'),
    (0.5, '(<row> <= <row>)'),
    (1, 'mx.nd.concat(<row>[:, :2], <row>[:, 2:], dim=1)'),
    (0.5, 'mx.nd.concat(*<rows>, dim=0).mean(axis=0, keepdims=True)'),
    (0.5, 'mx.nd.add_n(<row>, <row>).tanh()'),
    (0.5, 'mx.nd.stack(<row>, <row>).mean(axis=0)'),
    (0.5, '<row>.flip(axis=1)'),
    (0.5, 'mx.nd.slice_axis(<row>, axis=1, begin=1, end=2) * <row>'),
    (0.5, '(mx.nd.dot(<row>, <row>.T) * <row>).tanh()'),
    (0.5, '<mat>.mean(axis=0, keepdims=True)'),
    (0.5, 'mx.nd.dot(mx.nd.softmax(mx.nd.dot(<row>, <mat>.T)), <mat>)'),
    (0.5, '<vec>.expand_dims(axis=0)'),
    (0.5, 'mx.nd.broadcast_mul(<row>, <one>.reshape((1, 1))).tanh()'),
    (0.5, 'mx.nd.array([[<num>, <num>, <num>, <num>]])'),
    (0.5, '(mx.nd.ones((1, 4)) * <num>)'),
    (0.5, 'mx.nd.full((1, 4), <num>)'),
    (0.5, 'self.narrow(self.wide(<row>) * <num>).tanh()'),
    (0.5, 'self.wide(<row>)[:, 2:6] / (abs(<num>) + 1.0)'),
    (0.5, '(self.head(<row>)[:, <known> % 3] * <row>).tanh()'),
    (0.7, '(self.anchor + <row>)'),
    (0.5, '(<row> * self.anchor).tanh()'),
    (0.3, 'mx.nd.tanh(self.anchor)'),
    (0.5, 'mx.nd.zeros_like(<row>)'),
    (0.3, 'mx.nd.arange(4).reshape((1, 4)) * 0.1'),
    (0.5, 'mx.nd.one_hot(<row>.argmax(axis=1), 4)'),
    (0.5, '<row>.copy()'),
    (0.3, "<row>.astype('float32')"),
    (0.7, 'scaled(<row>, <num>)'),
    (0.5, 'scaled(<row>, flip=<bool>)'),
    (0.5, 'sum(<rows>).tanh()'),
]

GRAMMAR: dict[str, Kind] = {
    'fresh': Kind([(1, 'mx.nd.tanh(<row?>)'), (1, 'self.dense(<row?>)')], _FRESH),
    'row': Kind(
        [(0.06, 'mx.nd.zeros((1, 4))'), (0.04, 'mx.nd.ones((1, 4))')],
        [
            (12, '<fresh>'),
            (3, '<block!>(<row>)'),
            (1, '(<row> if <cond> else <row>)'),
            (1, '<rows>[-1]'),
            (1, '<rows!>[<known> % len(<=>)]'),
            (1, "<table!>['a']"),
            (0.5, '<table!>[<text>]'),
            (0.5, "<table!>.get('c', <row>)"),
            (1, '<pair>[0]'),
            (0.5, '<states!>[1]'),
            (0.7, '<mat>[<known> % 3].reshape((1, 4))'),
            (0.7, '<mat>[1:2]'),
            (0.5, '<mat>[-1:]'),
            (0.7, '<row>.reshape((2, 2)).transpose().reshape((1, 4))'),
            (0.3, '<row>.reshape(shape=(-1, 4))'),
            (1, 'self.part(<row>)'),
            (0.5, 'self.part(<row>, <num>)'),
            (0.7, 'self.stack(<row>)'),
            (0.5, '(<var> := <fresh>)'),
        ],
    ),
    'block': Kind([(1, 'self.dense')], []),
    'mat': Kind(
        [(0.3, 'mx.nd.ones((3, 4))')],
        [
            (1, 'mx.nd.concat(<row>, <row>, <row>, dim=0)'),
            (0.5, 'mx.nd.concat(*[<row>, <row>], <row>, dim=0)'),
            (1, '(<mat> + <row>)'),
            (1, 'self.dense(<mat>)'),
            (0.5, '<mat>.tanh()'),
            (0.5, 'mx.nd.broadcast_mul(<mat>, <row>).tanh()'),
            (0.3, 'mx.nd.repeat(<row>, repeats=3, axis=0)'),
        ],
    ),
    'vec': Kind(
        [(1, '<row?>[0]')],
        [
            (2, '<mat>[<known> % 3]'),
            (1, '<row>.sum(axis=0)'),
            (1, '(<vec> * <num>).tanh()'),
            (0.5, '<row>.reshape((4,))'),
        ],
    ),
    'one': Kind(
        [(1, '<row?>.sum()')],
        [
            (1, '<row>.mean(axis=1)'),
            (1, '<row>[0, <known> % 4]'),
            (1, '<vec>.max()'),
            (1, 'mx.nd.array([<num>])'),
            (0.5, '(<one> * 0.5 + <num>)'),
            (0.5, '(self.head(<row>) / (abs(<num>) + 1.0)).max()'),
        ],
    ),
    'num': Kind(
        [
            (3, '<const>'),
            (4, '<row?>.sum().asscalar()'),
            (2, 'float(<row?>.mean().asscalar())'),
        ],
        [
            (2, '<row>.max().asscalar()'),
            (1, 'float(<row>.min().asscalar())'),
            (1, 'float(<one>.asscalar())'),
            (1, '<one>.asscalar()'),
            (1, '<row>[0, <known> % 4].asscalar()'),
            (1, 'float(<row>[0][<known> % 4].asscalar())'),
            (1, 'float(<row>.norm().asscalar())'),
            (1, 'float(<row>.softmax().max().asscalar())'),
            (1, 'float(<int>)'),
            (3, '(<num> + <num>)'),
            (2, '(<num> - <num>)'),
            (2, '(<num> * <const>)'),
            (1, 'math.tanh(<num> * <num>)'),
            (1, '(<num> / (abs(<num>) + 1.0))'),
            (1, '(<num> // 0.7)'),
            (1, '(<num> % 0.7)'),
            (1, '(<num> % (abs(<num>) + 0.5))'),
            (0.5, '(abs(<num>) ** 0.5)'),
            (0.5, 'min(<num> ** 2, 4.0)'),
            (1, 'min(<num>, <num>)'),
            (1, 'max(<num>, <num>, <const>)'),
            (1, 'abs(<num>)'),
            (1, '-<num>'),
            (0.3, '+<num>'),
            (0.5, 'math.sqrt(abs(<num>))'),
            (0.5, 'math.exp(-abs(<num>))'),
            (0.5, 'math.log(abs(<num>) + 1.0)'),
            (0.5, 'math.tanh(<num>)'),
            (0.03, 'round(<num>, 2)'),
            (0.02, 'math.sin(<num>)'),
            (0.2, 'math.fabs(<num>)'),
            (0.02, 'math.pow(abs(<num>) + 0.1, 0.5)'),
            (2, '(<num> if <cond> else <num>)'),
            (0.5, '<nums>[0]'),
            (0.5, '<nums!>[<known> % len(<=>)]'),
            (0.5, 'sum(<nums>) / len(<nums>)'),
            (0.5, 'max(<nums>)'),
            (0.5, 'min(<nums>)'),
            (0.5, "<counts!>['a']"),
            (0.5, '<counts!>[<text>]'),
            (1, '<pair>[1]'),
            (0.5, 'clipped(<num>)'),
            (0.5, 'clipped(<num>, high=<const>)'),
            (0.5, '(<bool> + <num>)'),
            (0.5, '(<var> := <num>)'),
            (0.3, 'self.scale * <num>'),
            (0.3, 'divmod(<num>, 0.7)[1]'),
        ],
    ),
    'int': Kind(
        [(2, '<digit>'), (3, 'int(<row?>.argmax(axis=1).asscalar())')],
        [
            (2, 'int(self.head(<row>).argmax(axis=1).asscalar())'),
            (1, 'int(<row>.argmin(axis=1).asscalar())'),
            (1, 'int(<num>)'),
            (0.5, 'round(<num>)'),
            (0.5, 'math.floor(<num>)'),
            (0.5, 'math.ceil(<num>)'),
            (2, '(<int> + <int>)'),
            (1, '(<int> - <int>)'),
            (1, '(<int> * 2 % 7)'),
            (1, '(<int> // 2)'),
            (1, '(<int> % 3)'),
            (0.5, '(<int> % 5 + <int> // -2)'),
            (0.5, 'min(<int> ** 2, 9)'),
            (0.5, '-<int>'),
            (0.5, 'abs(<int>)'),
            (0.5, 'max(<int>, <int>)'),
            (0.5, 'len(<rows>)'),
            (0.5, 'int(<bool>)'),
            (0.3, '(<int> & 3)'),
            (0.3, '(<int> | 1)'),
            (0.3, '(<int> ^ 2)'),
            (1, '(<int> if <cond> else <int>)'),
            (0.5, '(<var> := <int>)'),
        ],
    ),
    'known': Kind([(1, '0'), (1, '1'), (1, '2'), (0.5, '3')], []),
    'const': Kind([(1, '0.1'), (1, '0.5'), (1, '-0.3'), (1, '1.5'), (0.5, '2'), (0.5, '-1')], []),
    'digit': Kind([(1, '0'), (1, '1'), (1, '2'), (1, '5'), (0.3, '-1')], []),
    'text': Kind([(1, "'a'"), (1, "'b'")], [(2, "('a' if <cond> else 'b')")]),
    'bool': Kind(
        [
            (4, '(<row?>.sum().asscalar() > <const>)'),
            (0.2, 'True'),
            (0.2, 'False'),
        ],
        [
            (2, '(<num> < <num>)'),
            (2, '(<num> >= <num>)'),
            (1, '(<int> == <int>)'),
            (1, '(<int> != <int>)'),
            (1, '(<int> <= <int>)'),
            (1, '(<const> < <num> < 1.2)'),
            (1, '(<num> <= <num> < <num>)'),
            (0.5, '(0 < <int> != <int> >= -1)'),
            (1, '(not <bool>)'),
            (1, '(<bool> and <bool>)'),
            (1, '(<bool> or <bool>)'),
            (0.5, '(<bool> and <bool> or <bool>)'),
            (0.5, '(<bool> and (<bool> or not <bool>))'),
            (0.5, 'bool(<num>)'),
            (0.5, '(len(<rows>) > 1)'),
            (0.3, '(<num!> is not None)'),
            (0.3, 'isinstance(<rows>, list)'),
            (0.3, "('c' in <table!>)"),
            (0.3, '(<known> in (1, 2))'),
            (0.5, '(<int> in (1, 2))'),
            (0.3, '(<int> not in [0, <int>])'),
            (0.5, 'any([<bool>, <bool>])'),
            (0.5, 'all(part > <const> for part in <nums>)'),
            (0.5, '(<text> == <text>)'),
            (0.5, 'self.flag'),
            (0.5, '(<bool> if <cond> else <bool>)'),
        ],
    ),
    'cond': Kind(
        [(2, '<bool>'), (1, '(<row?>.max() < <const>)')],
        [
            (6, '<bool>'),
            (1, '(<one> > <const>)'),
            (0.5, '(<one> < <one>)'),
            (0.3, '(<one> > <num>)'),
            (0.5, '(not <cond>)'),
            (0.5, '(<cond> and <cond>)'),
            (0.5, '(<cond> or <cond>)'),
            (0.2, '<num>'),
            (0.2, '<int>'),
        ],
    ),
    'rows': Kind(
        [(1, '[<row?>]'), (1, '[<row?>, <row?>]')],
        [
            (1, '[<row>, *<rows>]'),
            (0.5, '(<rows> + [<row>])'),
            (1, '[layer(<row>) for layer in self.layers]'),
            (1, '[part.tanh() for part in <rows>]'),
            (1, '[part * <num> for part in <rows>]'),
            (0.5, '[part + other for part in <rows> for other in <rows>][:4]'),
            (0.7, '([part for part in <rows> if part.sum().asscalar() > <const>] or [<row>])'),
            (0.5, 'list(<table!>.values())'),
            (0.5, '<rows!>[::-1]'),
            (0.5, '<rows!>[:2]'),
            (0.3, '<mat>.split(num_outputs=3, axis=0)'),
            (0.5, '[<row>[:, k:k + 1] * <row> for k in range(2)]'),
            (0.5, 'list(reversed(<rows>))'),
            (0.3, '[*map_rows(<rows>)]'),
        ],
    ),
    'nums': Kind(
        [(1, '[<num?>]'), (1, '[<num?>, <num?>]')],
        [
            (1, '[<num>, <num>, <num>]'),
            (1, '[float(part.sum().asscalar()) for part in <rows>]'),
            (1, '[each * 0.5 for each in <nums>]'),
            (0.5, '([each for each in <nums> if each > <const>] or [<num>])'),
            (0.5, '[k * <num> for k in range(3) if k != 1]'),
            (0.5, '[a - b for a, b in zip(<nums>, <nums>)]'),
            (0.05, 'sorted(<nums>)'),
            (0.3, 'list({k % 2 for k in range(3)})'),
        ],
    ),
    'table': Kind(
        [(1, "{'a': <row?>, 'b': <row?>}")],
        [
            (1, "{'a': <row>, 'b': <row>, 'c': <row>}"),
            (0.5, "{**<table>, 'b': <row>}"),
            (0.5, 'dict(a=<row>, b=<row>)'),
            (1, '{key: value.tanh() for key, value in <table>.items()}'),
            (0.5, "{key: <row> for key in ('a', 'b')}"),
        ],
    ),
    'counts': Kind(
        [(1, "{'a': <num?>, 'b': <num?>}")],
        [
            (1, "{'a': <num>, 'b': <int>}"),
            (0.5, '{key: each + 1 for key, each in <counts>.items()}'),
            (0.5, "dict(zip(('a', 'b'), (<num>, <num>)))"),
        ],
    ),
    'pair': Kind(
        [(1, '(<row?>, <num?>)')],
        [
            (1, '(<row>, <num>)'),
            (0.5, '(<pair> if <cond> else <pair>)'),
            (0.5, 'Pair(<row>, <num>)'),
        ],
    ),
    'states': Kind(
        [(1, '[<row?>, <row?>]'), (0.5, 'self.lstm.begin_state(batch_size=1)')],
        [(1, 'self.lstm(<row>, <states>)[1]')],
    ),
}
