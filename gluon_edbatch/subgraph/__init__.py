"""Static subgraphs: a HybridBlock's call as a graph, analysed, rewritten and split."""

from ..compiled import load

load(f'{__name__}.fingerprint')
