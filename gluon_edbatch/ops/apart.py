"""Rules for operators that divide something among the values along an axis: reductions of all
values, and operators that give each value its own result of these."""

from collections.abc import Sequence
from typing import Callable, Optional, TypeVar

from .attrs import Attrs

Entry = TypeVar('Entry')
# Of what appends an operator, the inputs, the attributes and the axis; None where it is not known.
ApartRule = Callable[[Callable[..., Entry], Sequence[Entry], Attrs, int], Optional[Entry]]


def softmax(logarithm: bool = False, sign: int = 1) -> ApartRule:
    """The largest is a constant: it is in the results to keep numbers small, and changes none."""

    def rule(
        add: Callable[..., Entry], inputs: Sequence[Entry], attrs: Attrs, axis: int
    ) -> Optional[Entry]:
        if len(inputs) > 1 or attrs.get('dtype', 'None') != 'None':
            return None
        x, temperature = inputs[0], attrs.get('temperature', 'None')
        if sign < 0:
            x = add('negative', x)
        if temperature != 'None':
            x = add('_div_scalar', x, scalar=temperature)
        largest = add('BlockGrad', add('max', x, axis=axis, keepdims=True))
        x = add('broadcast_sub', x, largest)
        total = add('sum', add('exp', x), axis=axis, keepdims=True)
        if logarithm:
            return add('broadcast_sub', x, add('log', total))
        return add('broadcast_div', add('exp', x), total)

    return rule
