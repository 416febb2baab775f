"""Operators that make a gradient of their own, whatever that of their result is.

In eager MXNet such a loss head takes part in a backward pass if the loss is reached from it, and
the gradient that it then gives to its input belongs to its own call alone: some divide it by the
number of their rows. In a batch neither would be so: MXNet hands a batch one gradient of all its
rows, where nothing tells a row that is zero from one that has no part in the loss. So under
autograd their calls, and those that read their results, run as in eager code (see `own_tape`).
"""
import json
from typing import List

import mxnet as mx

# Custom and _CustomFunction are Python of the user, who may do the same.
OWN_GRADIENT = frozenset('''
    MakeLoss make_loss SoftmaxOutput Softmax LinearRegressionOutput MAERegressionOutput
    LogisticRegressionOutput SVMOutput IdentityAttachKLSparseReg Custom _CustomFunction
'''.split())


def own_gradients(symbol: mx.sym.Symbol) -> List[str]:
    """Names of such operators in a Symbol, also in the bodies of its loops and conditions."""
    return sorted(_own(json.loads(symbol.tojson())))


def _own(graph: dict) -> set:
    found = {node['op'] for node in graph['nodes']} & OWN_GRADIENT
    return found.union(*[_own(inner) for node in graph['nodes']
                         for inner in node.get('subgraphs', ())])
