"""Writes a random program: a module with a Gluon Block, `Net`, drawn by a seed."""

import ast
import random
import re
from typing import Callable, NamedTuple, Optional

from .grammar import GRAMMAR, SUBKINDS

HEAD = '''\
import math
from collections import namedtuple

import mxnet as mx
from mxnet import gluon

Pair = namedtuple('Pair', 'row number')
LIMIT = 1.5


def scaled(x, times=0.5, *, flip=False):
    """A row times a number."""
    if flip:
        times = -times
    return (x * times).tanh()


def clipped(number, low=-LIMIT, high=LIMIT):
    """A number between two others."""
    if number < low:
        return low
    return min(number, high)


def map_rows(rows):
    """All of a list's rows, squeezed."""
    made = []
    for row in rows:
        made.append(row.tanh())
    return made


class Mix(gluon.HybridBlock):
    """A static part with an option of its own."""

    def __init__(self, twice):
        super().__init__()
        self.twice = twice
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=4, flatten=False)

    def hybrid_forward(self, F, x):
        y = F.tanh(self.dense(x))
        return y + x if self.twice else y


class Part(gluon.Block):
    """A block that is not hybrid, with control flow of its own."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=4, flatten=False)

%(part)s

class Base(gluon.Block):
    """What nets have in common."""

    scale = 0.7

    def __init__(self):
        super().__init__()
        self.flag, self.limit = %(flag)s, 3
        self.anchor = mx.nd.array([[0.5, -0.3, 0.1, 0.2]])
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=4, flatten=False)
            self.wide = gluon.nn.Dense(8, in_units=4, activation='relu')
            self.narrow = gluon.nn.Dense(4, in_units=8)
            self.head = gluon.nn.Dense(3, in_units=4)
            self.embed = gluon.nn.Embedding(10, 4)
            self.lstm = gluon.rnn.LSTMCell(4, input_size=4)
            self.gru = gluon.rnn.GRUCell(4, input_size=4)
            self.bn = gluon.nn.BatchNorm(in_channels=4)
            self.norm = gluon.nn.LayerNorm(in_channels=4)
            self.hybrid = Mix(%(twice)s)
            self.part = Part()
            self.layers = [gluon.nn.Dense(4, in_units=4, activation='tanh') for _ in range(3)]
            self.parts = [Part() for _ in range(2)]
            self.stack = gluon.nn.Sequential()
            self.stack.add(Part(), gluon.nn.Dense(4, in_units=4))
        for block in [*self.layers, *self.parts]:
            self.register_child(block)

    def start(self, x, times=1.0):
        """What a net begins with."""
        return self.dense(x) * times


class Net(Base):
    """The net that is compiled."""
'''
ARGUMENTS = {'x': 'row', 'seq': 'mat', 'ids': 'one'}
_KEPT = ('row', 'num', 'int', 'bool', 'rows', 'nums', 'table', 'counts', 'pair')
_DEEPEST = 3  # loops and branches
_VARIABLES = 0.9  # how often an expression that is to be short is a variable, if there is one


class Method(NamedTuple):
    """One that others may call: parameters behind the first, a row, with kind and default."""

    name: str
    options: tuple[tuple[str, str, str], ...]
    keyword_only: bool
    gives: str


class Program(NamedTuple):
    """Source of a module, and the arguments of its `Net`."""

    source: str
    arguments: tuple[str, ...]


class Scope(dict[str, str]):
    """Variables that are surely there, and their kinds; `fixed` may not be assigned."""

    def __init__(self, names: dict[str, str], fixed: frozenset = frozenset()):
        super().__init__(names)
        self.fixed = fixed

    def of(self, kind: str) -> list[str]:
        """Variables that may stand for a kind."""
        kinds = SUBKINDS.get(kind, (kind,))
        return [name for name, each in self.items() if each in kinds]

    def inner(self, fixed: tuple[str, ...] = (), **names: str) -> 'Scope':
        """Return the scope of a branch or loop in this scope."""
        return Scope({**self, **names}, self.fixed | set(fixed) | set(names))

    def assignable(self, *kinds: str) -> list[str]:
        """Return the variables that may get another value."""
        return [name for name, each in self.items() if each in kinds and name not in self.fixed]


class Writer:
    """Draws one program.

    Parameters
    ----------
    seed : str
    """

    def __init__(self, seed: str):
        self.random = random.Random(seed)
        self._names = 0
        self._methods: list[Method] = []
        self._budget = 0
        self._gives: Optional[str] = None  # what the function that is written returns; None: all
        self._in_part = False

    def program(self) -> Program:
        """Return the source of the module."""
        while True:
            try:
                made = self._program()
                ast.parse(made.source)
                compile(made.source, 'drawn', 'exec')
                return made
            except SyntaxError:  # := where Python has none
                continue

    def _program(self) -> Program:
        self._methods, self._names = [], 0
        options = {
            'part': self._part(),
            'flag': self.random.random() < 0.5,
            'twice': self.random.random() < 0.5,
        }
        text = HEAD % options
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            text += '\n' + '\n'.join(self._method()) + '\n'
        arguments = ('x',) + tuple([each for each in ('seq', 'ids') if self.random.random() < 0.4])
        text += '\n' + '\n'.join(self._forward(arguments)) + '\n'
        return Program(text, arguments)

    # --- expressions -----------------------------------------------------------------------------

    def expr(self, kind: str, scope: Scope, depth: int = 2) -> str:
        """Write an expression of a kind."""
        variables = [] if kind == 'fresh' else scope.of(kind)
        methods = [] if self._in_part else [each for each in self._methods if each.gives == kind]
        if variables and self.random.random() < (_VARIABLES if depth <= 0 else 0.3):
            return self.random.choice(variables)
        if methods and depth > 0 and self.random.random() < 0.12:
            return self._call(self.random.choice(methods), scope, depth)
        leaves, others = GRAMMAR[kind]
        choices = leaves + others if depth > 0 else leaves
        while True:
            (text,) = self.random.choices(
                [text for _, text in choices], [weight for weight, _ in choices]
            )
            if self._is_possible(text, scope):
                return self._filled(text, scope, depth - 1, kind)

    def _is_possible(self, text: str, scope: Scope) -> bool:
        if self._in_part and re.search(r'self\.(?!dense)', text):
            return False
        return all(scope.of(kind) for kind in re.findall(r'<(\w+)!>', text))

    def _filled(self, template: str, scope: Scope, depth: int, of: str = '') -> str:
        """A template with expressions for what stands in it; of which kind it is."""
        last = ''

        def fill(match: 're.Match') -> str:
            nonlocal last
            kind, mark = match.group(1), match.group(2)
            if kind == '=':
                return last
            if kind == 'var':
                return self._walrus(of, scope)
            if mark == '!':
                last = self.random.choice(scope.of(kind))
                return last
            return self.expr(kind, scope, 0 if mark == '?' else depth)

        return re.sub(r'<(\w+|=)([!?]?)>', fill, template)

    def _walrus(self, kind: str, scope: Scope) -> str:
        """A variable that is given a value amid an expression: it may be left out there, so it is
        one that has a value, or one that nobody reads."""
        names = scope.assignable(kind)
        return self.random.choice(names) if names and self.random.random() < 0.7 else self._new('w')

    def _call(self, method: Method, scope: Scope, depth: int) -> str:
        parts = [self.expr('row', scope, depth - 1)]
        by_place = not method.keyword_only
        for name, kind, _ in method.options:
            if self.random.random() < 0.4:
                by_place = False  # this one is left out
                continue
            value = self.expr(kind, scope, depth - 1)
            by_place = by_place and self.random.random() < 0.6
            parts.append(value if by_place else f'{name}={value}')
        return f'self.{method.name}({", ".join(parts)})'

    def _new(self, letter: str) -> str:
        self._names += 1
        return f'{letter}{self._names}'

    # --- functions -------------------------------------------------------------------------------

    def _part(self) -> str:
        """The forward of a block with control flow of its own."""
        self._in_part, self._gives = True, 'row'
        self._budget = self.random.randint(1, 3)
        body = self._body(Scope({'x': 'row', 'n': 'num'}), 1, False)
        body += [f'return {self.expr("row", Scope({"x": "row", "n": "num"}))}']
        self._in_part = False
        return '\n'.join(_indented(['def forward(self, x, n=0.2):', *_indented(body)])) + '\n'

    def _method(self) -> list[str]:
        """A method, which may call those before it, or itself."""
        if self.random.random() < 0.3:
            return self._recursive()
        kinds = {'n': ('num', '0.3'), 'flag': ('bool', 'False'), 'k': ('int', '2')}
        chosen = [name for name in kinds if self.random.random() < 0.4]
        options = tuple([(name, *kinds[name]) for name in chosen])
        gives = self.random.choice(['row', 'row', 'num', 'pair', 'rows', 'bool', 'int'])
        keyword_only = bool(options) and self.random.random() < 0.3
        method = Method(self._new('step'), options, keyword_only, gives)
        self._gives = gives
        scope = Scope({'x': 'row', **{name: kind for name, kind, _ in options}})
        self._budget = self.random.randint(1, 4)
        body = self._body(scope, 1, False)
        body.append(f'return {self.expr(gives, scope)}')
        star = ['*'] if keyword_only else []
        parameters = ['self', 'x', *star, *[f'{name}={default}' for name, _, default in options]]
        self._methods.append(method)
        return _indented([f'def {method.name}({", ".join(parameters)}):', *_indented(body)])

    def _recursive(self) -> list[str]:
        name = self._new('deeper')
        scope = Scope({'x': 'row', 'depth': 'int'}, frozenset(['depth']))
        self._gives, self._budget = 'row', self.random.randint(0, 2)
        again = f'self.{name}({self.expr("row", scope)}, depth - 1)'
        if self.random.random() < 0.3:
            again = f'{again} + self.{name}({self.expr("row", scope)}, depth=depth - 1)'
        body = self._body(scope, 2, False)
        stop = f'depth <= 0 or {self.expr("cond", scope)}'
        lines = [
            f'def {name}(self, x, depth=2):',
            *_indented([*body, f'if {stop}:', f'    return {self.expr("row", scope)}']),
            *_indented([f'return {again}']),
        ]
        self._methods.append(Method(name, (), False, 'row'))
        return _indented(lines)

    def _forward(self, arguments: tuple[str, ...]) -> list[str]:
        self._gives = None
        scope = Scope({name: ARGUMENTS[name] for name in arguments})
        self._budget = self.random.randint(4, 14)
        body = []
        if self.random.random() < 0.3:
            body.append(f'{self._define("row", scope)} = super().start(x, times={0.5})')
        if self.random.random() < 0.5:  # so that what comes out has gradients
            body.append(f'x = {self.expr("fresh", scope)} + self.dense(x)')
        while self._budget > 0:
            body += self._body(scope, 0, False)
        body += self._return(scope)
        return _indented([f'def forward(self, {", ".join(arguments)}):', *_indented(body)])

    def _define(self, kind: str, scope: Scope) -> str:
        letters = {'row': 'x', 'own': 'y', 'num': 'n', 'int': 'k', 'bool': 'b', 'one': 'o'}
        name = self._new(letters.get(kind, f'{kind}_'))
        scope[name] = kind
        return name

    # --- statements ------------------------------------------------------------------------------

    def _body(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        """Write one statement or more."""
        lines: list[str] = []
        for _ in range(self.random.randint(1, 4 if depth == 0 else 3)):
            self._budget -= 1
            lines += self._statement(scope, depth, in_loop)
            if self._budget <= 0:
                break
        return lines or ['pass']

    def _statement(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        simple: list[tuple[float, Callable]] = [
            (5, self._assign),
            (3, self._augment),
            (1.5, self._change),
            (1.5, self._unpack),
        ]
        nested: list[tuple[float, Callable]] = [
            (4, self._if),
            (3, self._for),
            (2, self._while),
            (0.7, self._best),
            (0.5, self._decode),
            (0.5, self._sequence),
            (0.7, self._add_up),
        ]
        if in_loop:
            simple.append((1, self._leave))
        if depth:
            simple.append((0.5, self._return_early))
        choices = simple + (nested if depth < _DEEPEST else [])
        (chosen,) = self.random.choices(
            [each for _, each in choices], [weight for weight, _ in choices]
        )
        if chosen in (self._if, self._for, self._while):
            return chosen(scope, depth, in_loop)
        return chosen(scope)

    def _assign(self, scope: Scope) -> list[str]:
        kind = self.random.choices(
            ['row', 'own', 'num', 'int', 'bool', 'rows', 'nums', 'table', 'counts', 'pair', 'text']
            + ['mat', 'states', 'one', 'vec'],
            [6, 2, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        )[0]
        names = scope.assignable(kind)
        value = self._value(kind, scope)
        if names and self.random.random() < 0.7:
            return [f'{self.random.choice(names)} = {value}']
        if kind in ('row', 'num', 'int') and self.random.random() < 0.1:
            return [f'{self._define(kind, scope)} = {self._define(kind, scope)} = {value}']
        if kind == 'num' and self.random.random() < 0.1:
            return [f'{self._define(kind, scope)}: float = {value}']
        return [f'{self._define(kind, scope)} = {value}']

    def _value(self, kind: str, scope: Scope) -> str:
        """An expression that keeps its values small."""
        value = self.expr('fresh' if kind == 'own' else kind, scope, 2)
        chance = self.random.random()
        if kind == 'num' and chance < 0.4:
            return f'max(-3.0, min(3.0, {value}))'
        if kind == 'int' and chance < 0.4:
            return f'{value} % 7'
        return value

    def _augment(self, scope: Scope) -> list[str]:
        """Write an augmented assignment."""
        chosen = self.random.choice(
            ['num', 'num', 'int', 'int', 'row', 'own', 'rows', 'item', 'and']
        )
        names = scope.assignable(chosen)
        if chosen == 'item':
            return self._augment_item(scope)
        if chosen == 'and':
            names = scope.assignable('bool')
            if names:
                operator = self.random.choice('&|')
                return [f'{self.random.choice(names)} {operator}= bool({self.expr("cond", scope)})']
        if not names:
            return self._assign(scope)
        name = self.random.choice(names)
        if chosen == 'num':
            operator = self.random.choice(['+=', '-=', '*= 0.5 *', '%= 0.4 +', '/= 1.0 +'])
            value = self.expr('num', scope)
            return [f'{name} {operator} {f"abs({value})" if len(operator) > 2 else value}']
        if chosen == 'int':
            small = self.random.choice(['*= 2', '%= 5', '//= 2', '**= 1'])
            value = f'+= {self.expr("int", scope)}'
            return [f'{name} {self.random.choice([value, "-= 1", "+= 1", small])}']
        if chosen == 'rows':
            return [f'{name} += [{self.expr("row", scope)}]']
        if chosen == 'own':
            value = self.random.choice(['+= <row>', '-= <row>', '*= 0.5', '+= <num>', '/= 2'])
            return [f'{name} {self._filled(value, scope, 2)}']
        return [f'{name} = {name} + {self.expr("row", scope)}']

    def _augment_item(self, scope: Scope) -> list[str]:
        holders = scope.assignable('nums', 'counts')
        if not holders:
            return self._assign(scope)
        name = self.random.choice(holders)
        key = '0' if scope[name] == 'nums' else self.expr('text', scope, 1)
        return [f'{name}[{key}] {self.random.choice(["+=", "-="])} {self.expr("num", scope)}']

    def _change(self, scope: Scope) -> list[str]:
        """Write a change of a list or dict."""
        holders = scope.assignable('rows', 'nums', 'table', 'counts')
        if not holders:
            return self._assign(scope)
        name = self.random.choice(holders)
        kind = scope[name]
        part = 'row' if kind in ('rows', 'table') else 'num'
        of_list = [f'{name}.append(<{part}>)'] * 3 + [
            f'{name}.insert(0, <{part}>)',
            f'{name}.extend([<{part}>, <{part}>])',
            f'{name}[-1] = <{part}>',
            f'{name}[0], {name}[-1] = {name}[-1], {name}[0]',
            f'if len({name}) > 1:\n    {name}.pop()',
            f'if len({name}) > 1:\n    <var> = {name}.pop(0)',
            f'{name}.reverse()',
        ]
        of_dict = [
            f'{name}[<text>] = <{part}>',
            f"{name}['c'] = <{part}>",
            f'{name}.update(b=<{part}>)',
            f"{name}.setdefault('d', <{part}>)",
        ]
        template = self.random.choice(of_list if kind in ('rows', 'nums') else of_dict)
        template = template.replace('<var>', self._new('gone'))
        return self._filled(template, scope, 1).split('\n')

    def _unpack(self, scope: Scope) -> list[str]:
        """Write an assignment to several targets."""
        chosen = self.random.randrange(7)
        if chosen == 0:
            value = self.expr('pair', scope)
            return [f'{self._define("row", scope)}, {self._define("num", scope)} = {value}']
        if chosen == 1:
            value = self.expr('rows', scope)
            return [f'{self._define("row", scope)}, *{self._new("rest")} = {value}']
        if chosen == 2:
            value = self._filled('(<row>, <num>), <int>', scope, 2)
            first = f'({self._define("row", scope)}, {self._define("num", scope)})'
            return [f'{first}, {self._define("int", scope)} = {value}']
        if chosen == 3 and not self._in_part:
            value = self._filled('self.lstm(<row>, <states>)', scope, 2)
            return [f'{self._define("row", scope)}, {self._define("states", scope)} = {value}']
        names = scope.assignable('row') if chosen < 6 else scope.assignable('num')
        if len(names) < 2:
            return self._assign(scope)
        first, second = self.random.sample(names, 2)
        return [f'{first}, {second} = {second}, {first}']

    def _return_early(self, scope: Scope) -> list[str]:
        return [f'if {self.expr("cond", scope)}:', *_indented(self._return(scope))]

    def _return(self, scope: Scope) -> list[str]:
        """Write a return of the function's kind; `forward` returns any nested value."""
        if self._gives:
            return [f'return {self.expr(self._gives, scope)}']
        kinds = [kind for kind in _KEPT if scope.of(kind)]
        parts = []
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.choice(kinds)
            own = self.random.random() < 0.8
            parts.append(self.random.choice(scope.of(kind)) if own else self.expr(kind, scope, 1))
        form = self.random.choice(['%s', '(%s,)', '[%s]', '{"x": x, "rest": (%s,)}', 'x, [%s]'])
        return [f'return {form % ", ".join(parts)}']

    def _leave(self, scope: Scope) -> list[str]:
        """Out of a loop, or on with it."""
        word = self.random.choice(['break', 'continue'])
        return [f'if {self.expr("cond", scope)}:', f'    {word}']

    def _if(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        test = self.expr('cond', scope)
        if self.random.random() < 0.15:
            name = self._new('n')
            test = f'({name} := {self.expr("num", scope)}) > {self.expr("const", scope)}'
            scope[name] = 'num'
        lines = [f'if {test}:', *_indented(self._body(scope.inner(), depth + 1, in_loop))]
        while self.random.random() < 0.25:
            lines += [f'elif {self.expr("cond", scope)}:']
            lines += _indented(self._body(scope.inner(), depth + 1, in_loop))
        if self.random.random() < 0.5:
            lines += ['else:', *_indented(self._body(scope.inner(), depth + 1, in_loop))]
        return lines

    def _for(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        choices = [self._over_range, self._over_rows, self._over_layers, self._over_others]
        head, names = self.random.choice(choices)(scope, 3 if depth == 0 else 2)
        inner = scope.inner(**names)
        lines = [f'for {head}:', *_indented(self._body(inner, depth + 1, True))]
        return lines + self._else(scope, depth, in_loop)

    def _else(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        if self.random.random() < 0.15:
            return ['else:', *_indented(self._body(scope.inner(), depth + 1, in_loop))]
        return []

    def _over_range(self, scope: Scope, trips: int) -> tuple[str, dict[str, str]]:
        name = self._new('i')
        if self.random.random() < 0.15:  # as many as a value says: the index is one, then
            return f'{name} in range({self.expr("int", scope)} % {trips + 1})', {name: 'int'}
        limits = self.random.choice([f'{trips}', f'1, {trips + 1}', f'{trips}, 0, -1', '0, 4, 2'])
        if trips == 3 and limits == f'{trips}' and not self._in_part:
            limits = self.random.choice(['3', 'self.limit', 'len(self.layers)'])
        return f'{name} in range({limits})', {name: 'known'}

    def _over_rows(self, scope: Scope, trips: int) -> tuple[str, dict[str, str]]:
        name, other = self._new('x'), self._new('x')
        rows = f'{self.expr("rows", scope, 1)}[:{trips}]'
        if self.random.random() < 0.3:
            return f'{name}, {other} in zip({rows}, {self.expr("rows", scope, 1)})', {
                name: 'row',
                other: 'row',
            }
        if self.random.random() < 0.4:
            index = self._new('i')
            start = self.random.choice(['', ', 1', ', start=0'])
            return f'{index}, {name} in enumerate({rows}{start})', {index: 'known', name: 'row'}
        return f'{name} in {rows}', {name: 'row'}

    def _over_layers(self, scope: Scope, trips: int) -> tuple[str, dict[str, str]]:
        if self._in_part:
            return self._over_range(scope, trips)
        layer, part = self._new('layer'), self._new('part')
        chosen = self.random.randrange(4)
        if chosen == 0:
            return f'{layer} in self.layers[:{trips}]', {layer: 'block'}
        if chosen == 1:
            index = self._new('i')
            head = f'{index}, {layer} in enumerate(self.layers[:{trips}])'
            return head, {index: 'known', layer: 'block'}
        if chosen == 2:
            head = f'{layer}, {part} in zip(self.layers, self.parts)'
            return head, {layer: 'block', part: 'block'}
        row, given = self._new('x'), self.expr('row', scope, 1)
        return f'{row} in [part({given}) for part in self.parts]', {row: 'row'}

    def _over_others(self, scope: Scope, trips: int) -> tuple[str, dict[str, str]]:
        chosen = self.random.randrange(5)
        key, value = self._new('key'), self._new('x')
        if chosen == 0:
            return f'{key}, {value} in {self.expr("table", scope, 1)}.items()', {value: 'row'}
        if chosen == 1:
            return f"{key} in ('a', 'b')", {key: 'text'}
        if chosen == 2:
            number = self._new('n')
            return f'{number} in {self.expr("nums", scope, 1)}[:{trips}]', {number: 'num'}
        if chosen == 3:
            vec = self._new('v')
            return f'{vec} in {self.expr("mat", scope, 1)}', {vec: 'vec'}
        number = self._new('n')
        return f'{number} in (0.1, {self.expr("num", scope, 1)}, -1)', {number: 'num'}

    def _while(self, scope: Scope, depth: int, in_loop: bool) -> list[str]:
        """With a counter, which may be one of two conditions."""
        counter, trips = self._new('c'), self.random.choice([2, 3, 4] if depth == 0 else [2, 3])
        inner = scope.inner(**{counter: 'int'})
        bound = f'{counter} < {trips}'
        value = self.expr('cond', scope)
        test = self.random.choice(
            [bound, f'{bound} and {value}', f'{bound} and {value}', f'{value} and {bound}', 'True']
        )
        lines = [f'{counter} = 0', f'while {test}:', f'    {counter} += 1']
        if test == 'True':
            lines += [f'    if {counter} > {trips} or {value}:', '        break']
        elif self.random.random() < 0.1:
            total = self._new('n')
            lines[0] = f'{counter} = {total} = 0'
            lines[1] = f'while ({total} := {self.expr("num", scope)}) < 1.0 and {bound}:'
        lines += _indented(self._body(inner, depth + 1, True))
        return lines + self._else(scope, depth, in_loop)

    # --- what users often write ------------------------------------------------------------------

    def _best(self, scope: Scope) -> list[str]:
        """The best of some rows, and where it was."""
        rows, row, score = self.expr('rows', scope, 1), self._new('x'), self._new('n')
        best, at, i = self._new('best'), self._new('k'), self._new('i')
        inner = scope.inner(**{row: 'row'})
        lines = [
            f'{best}, {at} = None, -1',
            f'for {i}, {row} in enumerate({rows}):',
            f'    {score} = {self.expr("num", inner)}',
            f'    if {best} is None or {score} > {best}:',
            f'        {best}, {at} = {score}, {i}',
        ]
        scope[at] = 'int'
        return lines

    def _add_up(self, scope: Scope) -> list[str]:
        """Rows, in an array that is changed in place."""
        total, row = self._new('y'), self._new('x')
        rows = self.expr('rows', scope, 1)
        inner = scope.inner(**{row: 'row'})
        lines = [
            f'{total} = mx.nd.zeros((1, 4))',
            f'for {row} in {rows}:',
            f'    if {self.expr("cond", inner)}:',
            f'        {total} += {self.expr("row", inner)}',
        ]
        scope[total] = 'own'
        return lines

    def _decode(self, scope: Scope) -> list[str]:
        """Write a loop that makes tokens until one ends it."""
        if self._in_part:
            return self._assign(scope)
        token, states, words, hidden = [self._new(each) for each in ('k', 'states', 'words', 'x')]
        given = self.expr('row', scope)
        lines = [
            f'{token}, {states}, {words} = 1, [{given}, mx.nd.zeros((1, 4))], []',
            f'while {token} != 0 and len({words}) < 4:',
            f'    {hidden}, {states} = self.lstm(self.embed(mx.nd.array([{token}])), {states})',
            f'    {token} = int(self.head({hidden}).argmax(axis=1).asscalar())',
            f'    {words}.append({token})',
        ]
        scope.update({token: 'int', states: 'states'})
        return lines

    def _sequence(self, scope: Scope) -> list[str]:
        """A cell along a sequence, which may end early."""
        if self._in_part:
            return self._assign(scope)
        states, out, vec = self._new('states'), self._new('x'), self._new('v')
        inner = scope.inner(**{out: 'row'})
        lines = [
            f'{states}, {out} = {self.expr("states", scope)}, {self.expr("row", scope)}',
            f'for {vec} in {self.expr("mat", scope)}:',
            f'    {out}, {states} = self.lstm({vec}.reshape((1, 4)) + {out}, {states})',
            f'    if {self.expr("cond", inner)}:',
            '        break',
        ]
        scope.update({states: 'states', out: 'row'})
        return lines


def _indented(lines: list[str]) -> list[str]:
    return [f'    {line}' for line in lines]
