"""Static subgraphs: a HybridBlock's call as a Symbol, analysed, specialised and compiled."""
