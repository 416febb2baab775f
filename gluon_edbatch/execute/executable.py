"""What was compiled of each type, and proved of it, so far: types themselves are facts only."""

from typing import TYPE_CHECKING, Dict, Optional, Set, Tuple
from weakref import WeakKeyDictionary

from ..subgraph.node_type import NodeType

if TYPE_CHECKING:
    from .cached.program import Program
    from .native.program import NativeProgram


class Executable:
    """Of one type.

    Attributes
    ----------
    programs : dict
        By how arguments are read, and whether products are fused (see `cached.program`).
    native : NativeProgram or None
        For the native operators, once it is known;
    not_native : str or None
        or why there is none.
    verified, verified_padding : bool
        Whether batched results were compared with a run alone, or need not be; the same for
        batches with padding.
    changed_by : set of str
        The options that made a difference to what was compiled.
    """

    def __init__(self, node_type: NodeType):
        self.programs: Dict[Tuple[Tuple[str, ...], bool], Program] = {}
        self.native: Optional[NativeProgram] = None
        self.not_native: Optional[str] = None
        # Of a type that looks rows up, the rest of it is compared.
        self.verified = node_type.alone or not node_type.graph.parameters or bool(node_type.tables)
        self.verified_padding = self.verified and (
            not node_type.ragged or node_type.lengths is not None or bool(node_type.tables)
        )
        self.changed_by: Set[str] = {'whole_values'} if node_type.whole else set()


_known: 'WeakKeyDictionary[NodeType, Executable]' = WeakKeyDictionary()


def executable(node_type: NodeType) -> Executable:
    """That of a type."""
    found = _known.get(node_type)
    return _known.setdefault(node_type, Executable(node_type)) if found is None else found
