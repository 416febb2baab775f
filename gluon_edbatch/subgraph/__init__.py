"""Static subgraphs: a HybridBlock's call as a graph, analysed, rewritten and split."""

from gluon_edbatch_core.compiled import load

load(f'{__name__}.fingerprint')
