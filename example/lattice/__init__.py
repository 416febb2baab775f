"""Lattice LSTM and GRU for Chinese named entities (after Zhang and Yang, 2018).

In the order in which data passes them: ``make_sample`` (or real data) -> ``data`` -> ``model``;
``train`` is the program that runs them.
"""
