"""What a fold has noted, step by step."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..brief import brief
from .handles import NotedCall, op_name


def summary(calls: Iterable[NotedCall]) -> str:
    """Lines such as ``15 x Dense(dense0)((1, 4))`` under the depth of these calls."""
    steps: dict[int, Counter] = {}
    for call in calls:
        steps.setdefault(call.depth, Counter())[_text(call)] += 1
    total = sum([sum(step.values()) for step in steps.values()])
    lines = [f'Fold: {total} calls in {len(steps)} steps']
    for depth in sorted(steps):
        lines.append(f'  step {depth}:')
        lines += [f'    {number} x {text}' for text, number in steps[depth].items()]
    return '\n'.join(lines)


def _text(call: NotedCall) -> str:
    axis = f', batch axis {call.batch_axis}' if call.batch_axis else ''
    return f'{call}({_arguments(call.args)}){axis}'


def _arguments(items: Iterable[Any]) -> str:
    """Descriptions, those of neighbours that are alike as one."""
    texts = [(text, len(list(alike))) for text, alike in groupby(map(_argument, items))]
    return ', '.join([text if number == 1 else f'{number} x {text}' for text, number in texts])


def _argument(item: Any) -> str:
    if isinstance(item, (NDArray, np.ndarray)):
        return str(item.shape)
    if isinstance(item, list):
        return f'[{_arguments(item)}]'
    if isinstance(item, tuple):
        return f'({_arguments(item)})'
    if isinstance(item, dict):
        return f'{{{", ".join([f"{key!r}: {_argument(value)}" for key, value in item.items()])}}}'
    return op_name(item) if isinstance(item, gluon.Block) else brief(item)
