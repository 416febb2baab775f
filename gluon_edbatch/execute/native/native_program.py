"""The program of a type for the native operators, made once."""

from typing import NamedTuple, Optional

from ... import debug
from ...ops.instructions import RowProgram
from ...ops.lowering_context import Unsupported
from ...subgraph.node_type import NodeType
from ..executable import executable
from . import library
from .lowering import lower
from .words import Layout, layout


class NativeProgram(NamedTuple):
    """A type's program, and its words for runs without and with a backward pass."""

    program: RowProgram
    layouts: tuple[Layout, Layout]


def native_program(node_type: NodeType) -> Optional[NativeProgram]:
    """The program of a type; None if it cannot run natively (`Executable.not_native` says why)."""
    known = executable(node_type)
    if known.native is None and known.not_native is None:
        try:
            if not (node_type.options.native and library.available()):
                raise Unsupported('there are no native operators')
            if node_type.graph.function is not None:
                raise Unsupported('runs Python code')
            program, changed = lower(node_type)
            debug.show(debug.PROGRAMS, f'{node_type}, natively', program)
            known.native = NativeProgram(program, (layout(program, False), layout(program, True)))
            known.changed_by.update(changed, ['native'])
        except Unsupported as reason:
            known.not_native = str(reason)
            debug.show(debug.PROGRAMS, f'{node_type}, not natively: it {reason}')
    return known.native
