"""The registry of MXNet's operators: one entry for each, read by all stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Callable, Optional

from .attrs import Attrs
from .axis_rules import AxisRule, DecompositionRule, LinksRule
from .lowering_context import Arrangement
from .native import NativeRule
from .numbers import NumberRule
from .whole import WholeRule

ModeRule = Callable[[Attrs, bool], bool]  # of attributes, and whether in training mode
_NOISE = ('_random_', '_sample_', '_image_random_')  # begin names of operators that draw


class Arithmetic(Enum):
    """Kinds of arithmetic on arrays: sum, difference, product, quotient."""

    SUM = 'sum'
    DIFFERENCE = 'difference'
    PRODUCT = 'product'
    QUOTIENT = 'quotient'


def always(attrs: Attrs, training: bool) -> bool:
    """Return True: the operator draws random numbers in every mode."""
    return True


@dataclass(frozen=True)
class Op:
    """An operator's entry. Without a rule, an operator is not batched, padded or run natively."""

    name: str  # MXNet's own, which graphs have; never an alias
    # what it makes of an axis along which calls lie, or which is padded (see `ops.axis_rules`)
    axis: Optional[AxisRule] = None
    whole: Optional[WholeRule] = None  # the operator on one axis more (see `ops.whole`)
    # of those that divide something among the values along an axis: what does the same by way of
    # reductions (see `ops.axis_rules`)
    decomposition: Optional[DecompositionRule] = None
    # of those that reduce an axis: the result where it has no values; None if there is none
    of_none: Optional[float] = None
    # which padded axes are equally long, where shapes of the results do not tell
    links: Optional[LinksRule] = None
    native: Optional[NativeRule] = None  # what it becomes in a program for rows (see `ops.native`)
    # the same of ragged values of which the graph arranges the axes otherwise
    arranged: Mapping[Arrangement, Optional[NativeRule]] = field(default_factory=dict)
    # what it becomes where the number among its attributes is data (see `ops.numbers`)
    number: Optional[NumberRule] = None
    # whether each element of the result depends on those at its place only, with gradients that are
    # so, too; inputs may be broadcast
    elementwise: bool = False
    # of those that are not: for which attributes each value of a ragged first input gives its own
    # result
    by_value: Callable[[Attrs], bool] = lambda attrs: False
    arithmetic: Optional[Arithmetic] = None
    # of arithmetic and comparisons of two arrays: the operator that takes equal shapes only
    aligned: Optional[str] = None
    # of those that read nothing of their input but the length of one axis: which, if any
    of_axis: Callable[[Attrs], Optional[int]] = lambda attrs: None
    indices: tuple[int, ...] = ()  # inputs that are positions, for which operators refuse gradients
    weights: tuple[int, ...] = ()  # inputs that all calls share, however small
    unread: tuple[int, ...] = ()  # inputs whose values the backward pass does not read
    # whether its gradient is its own, whatever that of its result is (`subgraph.own_gradient`)
    own_gradient: bool = False
    noise: Optional[ModeRule] = None  # whether it draws random numbers
    # of those that keep statistics of what they were applied to, and write them: whether they are
    # to take those of the batch
    statistics: Optional[ModeRule] = None
    # whether its backward pass does not add to a gradient of a variable when asked to
    never_adds: bool = False
    # whether to run it early, once for all batches, pays (see `plan.split_batches`)
    heavy: bool = False
    # whether a native program gives its input another shape, and computes nothing
    is_view: bool = False

    @property
    def batches(self) -> bool:
        """Whether the operator has any rule for batches."""
        return self.axis is not None or self.whole is not None

    def draws(self, attrs: Attrs, training: bool) -> bool:
        """Return whether the operator draws random numbers."""
        return self.noise is not None and self.noise(attrs, training)


OPS: dict[str, Op] = {}


def register(op: Op) -> None:
    """Add an entry; each operator has one."""
    assert op.name not in OPS, f'{op.name} has two entries'
    OPS[op.name] = op


def op_of(name: str) -> Op:
    """Return the entry of an operator; one without rules if there is none."""
    op = OPS.get(name)
    if op is None:
        draws = name.startswith(_NOISE) and not name.startswith('_random_pdf_')
        op = Op(name, noise=always if draws else None)
    return op
