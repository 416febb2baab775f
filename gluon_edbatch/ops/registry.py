"""What the package knows of MXNet's operators: one entry for each, from which all stages read."""

from dataclasses import dataclass
from enum import Enum
from typing import Callable, Optional

from .attrs import Attrs
from .mending import MendingRule
from .native import NativeRule
from .numbers import NumberRule
from .padding_rules import ApartRule, LinksRule, PaddingRule
from .row_rules import RowsRule
from .whole import WholeRule

Affine = Callable[[Attrs], tuple[float, float]]  # what it multiplies by, and adds
ModeRule = Callable[[Attrs, bool], bool]  # of attributes, and whether in training mode
_NOISE = ('_random_', '_sample_', '_image_random_')  # begin names of operators that draw


class Arithmetic(Enum):
    """What a sum, difference, product or quotient of arrays is."""

    SUM = 'sum'
    DIFFERENCE = 'difference'
    PRODUCT = 'product'
    QUOTIENT = 'quotient'


def always(attrs: Attrs, training: bool) -> bool:
    """It draws in every mode."""
    return True


@dataclass(frozen=True)
class Op:
    """What is known of an operator. What is not said is not assumed: it is not batched, not padded,
    not run natively.

    Attributes
    ----------
    name : str
        MXNet's own, which graphs have; never an alias.
    rows : callable, optional
        Whether a batched input gives a batched output, row by row (see `ops.row_rules`).
    whole : callable, optional
        The operator on one axis more (see `ops.whole`).
    padding : callable, optional
        What it makes of padding (see `ops.padding_rules`).
    apart : callable, optional
        Of those that divide something among the values along an axis: what does the same by way of
        reductions (see `ops.padding_rules`).
    links : callable, optional
        Which padded axes are equally long, where shapes of the results do not tell.
    native : callable, optional
        What it becomes in a program for rows (see `ops.native`).
    arranged : callable, optional
        The same of ragged values that the graph arranges by heads (see `ops.arranged`).
    number : callable, optional
        What it becomes where the number among its attributes is data (see `ops.numbers`).
    elementwise : bool
        Whether each element of the result depends on those at its place only, with gradients that
        are so, too; inputs may be broadcast.
    by_value : callable, optional
        Of those that are not: for which attributes each value of a ragged first input gives its own
        result.
    affine : callable, optional
        Of a product or sum with a number: what it multiplies by, and adds.
    arithmetic : Arithmetic, optional
    broadcasting, aligned : str, optional
        Of arithmetic and comparisons: the operator that broadcasts, and the one that takes equal
        shapes only.
    of_axis : callable, optional
        Of those that read nothing of their input but the length of one axis: which, if any.
    indices : tuple of int
        Inputs that are positions, for which operators refuse gradients.
    weights : tuple of int
        Inputs that all calls share, however small.
    unread : tuple of int
        Inputs whose values the backward pass does not read.
    own_gradient : bool
        Whether its gradient is its own, whatever that of its result is (`subgraph.own_gradient`).
    noise : callable, optional
        Whether it draws random numbers.
    statistics : callable, optional
        Of those that keep statistics of what they were applied to, and write them: whether they are
        to take those of the batch.
    mending : callable, optional
        What does the same, of those that do harm in a graph (see `ops.mending`).
    keeps_size : bool
        Whether the result is to have as many elements as the input, and MXNet does not see to it.
    never_adds : bool
        Whether its backward pass does not add to a gradient of a variable when asked to.
    heavy : bool
        Whether to run it early, once for all batches, pays (see `plan.split_batches`).
    is_view : bool
        Whether a native program gives its input another shape, and computes nothing.
    """

    name: str
    rows: Optional[RowsRule] = None
    whole: Optional[WholeRule] = None
    padding: Optional[PaddingRule] = None
    apart: Optional[ApartRule] = None
    links: Optional[LinksRule] = None
    native: Optional[NativeRule] = None
    arranged: Optional[NativeRule] = None
    number: Optional[NumberRule] = None
    elementwise: bool = False
    by_value: Callable[[Attrs], bool] = lambda attrs: False
    affine: Optional[Affine] = None
    arithmetic: Optional[Arithmetic] = None
    broadcasting: Optional[str] = None
    aligned: Optional[str] = None
    of_axis: Callable[[Attrs], Optional[int]] = lambda attrs: None
    indices: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    own_gradient: bool = False
    noise: Optional[ModeRule] = None
    statistics: Optional[ModeRule] = None
    mending: Optional[MendingRule] = None
    keeps_size: bool = False
    never_adds: bool = False
    heavy: bool = False
    is_view: bool = False

    @property
    def batches(self) -> bool:
        """Whether it has any rule for batches."""
        return self.rows is not None or self.whole is not None

    def draws(self, attrs: Attrs, training: bool) -> bool:
        """Whether it draws random numbers."""
        return self.noise is not None and self.noise(attrs, training)


OPS: dict[str, Op] = {}


def register(op: Op) -> None:
    """Make an entry; there is one for each operator."""
    assert op.name not in OPS, f'{op.name} has two entries'
    OPS[op.name] = op


def op_of(name: str) -> Op:
    """What is known of an operator: an entry that says nothing, if there is none."""
    op = OPS.get(name)
    if op is None:
        draws = name.startswith(_NOISE) and not name.startswith('_random_pdf_')
        op = Op(name, noise=always if draws else None)
    return op
