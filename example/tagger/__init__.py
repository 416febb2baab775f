"""Tag named entities by a BiLSTM, with characters for rare words if asked (WikiNER).

In the order in which data passes them: ``make_sample`` (or real data) -> ``data`` -> ``model``;
``train`` is the program that runs them.
"""
