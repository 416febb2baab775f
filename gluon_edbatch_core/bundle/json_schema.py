"""The JSON Schema of the samples of an exported model, of the kinds of `sample_schema`."""

from collections.abc import Mapping, Sequence
from typing import Any

from .sample_schema import Kind

_ATOMS = {'int': 'integer', 'float': 'number', 'str': 'string', 'bool': 'boolean', 'none': 'null'}
_NUMBERS = {'b': 'boolean', 'i': 'integer', 'u': 'integer'}  # by what a dtype begins with


def json_schema(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a sample; `content` is that of a model's manifest."""
    names = [each['name'] for each in content['classes']]
    things = {
        f'{names[int(number)]}-{number}': {
            'type': 'object',
            'properties': {name: _schema(kind, names) for name, kind in fields.items()},
            'required': list(fields),
        }
        for number, fields in content['fields'].items()
    }
    arguments = content['arguments']
    of = _schema(arguments[0], names) if len(arguments) == 1 else _each(arguments, names)
    return {**of, '$defs': things} if things else of


def _schema(kind: Kind, names: Sequence[str]) -> dict[str, Any]:
    if kind is None:
        return {'not': {}}
    if isinstance(kind, str):
        return {'type': _ATOMS[kind]}
    ((name, of),) = kind.items()
    if name == 'thing':
        return {'$ref': f'#/$defs/{names[of]}-{of}'}
    if name == 'any':
        return {'anyOf': [_schema(each, names) for each in of]}
    if name == 'tuple':
        return _each(of, names)
    if name == 'list':
        return {'type': 'array', 'items': _schema(of, names)}
    if name in ('array', 'value'):
        dtype, axes = of
        found: dict[str, Any] = {'type': _NUMBERS.get(dtype[0], 'number')}
        for _ in range(axes):
            found = {'type': 'array', 'items': found}
        return found
    if of[0] == 'str':
        return {'type': 'object', 'additionalProperties': _schema(of[1], names)}
    return {'type': 'array', 'items': _each(of, names)}


def _each(kinds: Sequence[Kind], names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a list with an item of each kind."""
    number = len(kinds)
    items = {'prefixItems': [_schema(each, names) for each in kinds]} if kinds else {}
    return {'type': 'array', **items, 'minItems': number, 'maxItems': number}
