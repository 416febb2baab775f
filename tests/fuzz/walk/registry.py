"""What MXNet says of its operators: names, arguments, and the types of their attributes."""

import ctypes
from typing import NamedTuple

import mxnet as mx
from mxnet.base import _LIB, OpHandle, c_str, check_call, py_str

from gluon_edbatch.mx.symbols import NUMPY, in_mx_sym


class Attribute(NamedTuple):
    """An attribute of an operator: name, and type in MXNet's words."""

    name: str
    kind: str

    @property
    def required(self) -> bool:
        """Whether the attribute has no default."""
        return 'required' in self.kind or 'optional' not in self.kind


class Operator(NamedTuple):
    """An operator of the registry.

    Attributes
    ----------
    name : str
    aliases : tuple of str
        Its names, this one included.
    inputs : tuple of str
        Names of the arrays.
    attributes : tuple of Attribute
    count : str
        The attribute that says how many arrays there are, if any number of them is taken.
    written : bool
        Whether it is a function or idiom of NumPy mode (see `numpy_calls`).
    """

    name: str
    aliases: tuple[str, ...]
    inputs: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    count: str
    written: bool = False

    @property
    def why_not(self) -> str:
        """Why users do not call it; nothing if they do."""
        if 'backward' in self.name:
            return 'is the gradient of another operator'
        if self.name.startswith(NUMPY) and in_mx_sym(self.name) is None:
            return 'is of NumPy mode (--numpy)'
        if self.name in _INTERNAL:
            return _INTERNAL[self.name]
        return ''


_INTERNAL = dict.fromkeys(
    '_CachedOp _CachedOpThreadSafe _CustomFunction _NDArray _Native _NoGradient '
    '_CrossDeviceCopy _foreach _while_loop _cond Custom'.split(),
    'takes a function or a graph; MXNet calls it by its own Python functions',
)
_INTERNAL.update(
    dict.fromkeys(
        """_sg_mkldnn_conv _sg_mkldnn_fully_connected _sg_mkldnn_selfatt_qk
    _sg_mkldnn_selfatt_valatt""".split(),
        'is what MXNet makes of a part of a graph',
    )
)
_INTERNAL.update(
    dict.fromkeys(
        '_cvimread _cvimdecode _imdecode _npi_share_memory'.split(),
        'reads a file or an encoded image',
    )
)
_INTERNAL.update(
    dict.fromkeys(
        """_contrib_dgl_adjacency _contrib_dgl_csr_neighbor_non_uniform_sample
    _contrib_dgl_csr_neighbor_uniform_sample _contrib_dgl_graph_compact _contrib_dgl_subgraph
    _contrib_edge_id _contrib_getnnz _square_sum _sparse_retain _sparse_adagrad_update cast_storage
    _contrib_SparseEmbedding _contrib_group_adagrad_update""".split(),
        'takes or gives sparse arrays',
    )
)


def handle(name: str) -> OpHandle:
    """MXNet's handle of an operator."""
    found = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(name), ctypes.byref(found)))
    return found


def registry() -> dict[str, Operator]:
    """All operators by name."""
    names: dict[str, list[str]] = {}
    for name in sorted(mx.operator.get_all_registered_operators()):
        if not name.startswith('edb_'):
            text = ctypes.c_char_p()
            check_call(_LIB.MXSymbolGetAtomicSymbolName(handle(name), ctypes.byref(text)))
            names.setdefault(py_str(text.value), []).append(name)
    return {name: _operator(name, tuple(aliases)) for name, aliases in sorted(names.items())}


def _operator(name: str, aliases: tuple[str, ...]) -> Operator:
    texts = [ctypes.c_char_p() for _ in range(4)]  # name, description, count, what it returns
    columns = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    size = ctypes.c_uint()
    check_call(
        _LIB.MXSymbolGetAtomicSymbolInfo(
            handle(name),
            ctypes.byref(texts[0]),
            ctypes.byref(texts[1]),
            ctypes.byref(size),
            *map(ctypes.byref, columns),
            ctypes.byref(texts[2]),
            ctypes.byref(texts[3]),
        )
    )
    arguments = [(py_str(columns[0][i]), py_str(columns[1][i])) for i in range(size.value)]
    arrays = [argument for argument, kind in arguments if kind.startswith(('NDArray', 'Symbol'))]
    return Operator(
        name,
        aliases,
        tuple(arrays),
        tuple(Attribute(argument, kind) for argument, kind in arguments if argument not in arrays),
        py_str(texts[2].value) if any('[]' in kind for _, kind in arguments) else '',
    )
