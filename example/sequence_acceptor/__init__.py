"""Classify film reviews as positive or negative by an LSTM's last state: the sequence acceptor of
DyNet's page on automatic batching.

In the order in which data passes them: ``data`` -> ``model``; ``task`` puts them together for the
training program, ``train``. ``page`` is the page's own program.
"""
