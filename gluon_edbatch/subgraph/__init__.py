"""Static subgraphs: a HybridBlock's call as a graph, analysed, rewritten and split."""
