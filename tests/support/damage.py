"""Damage files as a fault of a disk, a program that was killed, or an editor may."""

import copy
import json

_JUNK = [
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**31,
    -(2**63),
    10**4000,
    0.5,
    -0.0,
    1e308,
    float('nan'),
    float('inf'),
    '',
    'x',
    '\ud800',
    '\0',
    'E_max',
    'least deep',
    [],
    [[]],
    {},
    {'': 0},
    [[0], 0],
    [[[0, 1], 0]],
]
_DEEP = 'lists in lists'  # Python itself would not write them


def damaged(whole, generator):
    """Return a file with a few bits, bytes or pieces changed, put in, left out or moved."""
    data = bytearray(whole)
    for _ in range(generator.randint(1, 4)):
        at, length = generator.randint(len(data)), generator.randint(1, 40)
        piece = data[at : at + length]
        kind = generator.randint(5)
        if kind == 0:
            data[at] ^= 1 << generator.randint(8)
        elif kind == 1:
            data[at] = generator.randint(256)
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = piece
        else:
            other = generator.randint(len(data))
            data[other : other + len(piece)] = piece
    return bytes(data)


def truncated(whole, generator):
    """Return the beginning of a file, which may be nothing or all of it."""
    return whole[: generator.randint(len(whole) + 1)]


def edited_json(whole, generator):
    """Return a JSON file with a few values changed, left out, doubled or exchanged."""
    content = json.loads(whole)
    for _ in range(generator.randint(1, 3)):
        holder, key = _place(content, generator)
        other, other_key = _place(content, generator)
        kind = generator.randint(9)
        if kind == 0:
            holder[key] = copy.deepcopy(_JUNK[generator.randint(len(_JUNK))])
        elif kind == 1 and len(holder) > 1:
            del holder[key]
        elif kind == 2 and isinstance(holder, list):
            holder.insert(generator.randint(len(holder) + 1), copy.deepcopy(holder[key]))
        elif kind == 3:
            value = other[other_key]
            other[other_key] = copy.deepcopy(holder[key])
            holder[key] = copy.deepcopy(value)
        elif kind == 4:
            holder[key] = _DEEP
        elif type(holder[key]) in (int, float):
            holder[key] += int(generator.choice([-1, 1, 1000]))
    depth = generator.randint(1, 1500)
    return json.dumps(content).replace(f'"{_DEEP}"', '[' * depth + ']' * depth).encode()


def _place(content, generator):
    """Return a non-empty list or dict of some content, and an index or a key in it."""
    while True:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        key = keys[generator.randint(len(keys))]
        inner = content[key]
        if not isinstance(inner, (list, dict)) or not inner or not generator.randint(4):
            return content, key
        content = inner
