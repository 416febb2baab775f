"""Transition-based dependency parser with features of a BiLSTM (Universal Dependencies).

In the order in which data passes them: ``make_sample`` (or real data) -> ``data`` ->
``transitions`` -> ``model`` -> ``metrics``; ``train`` is the program that runs them.
"""
