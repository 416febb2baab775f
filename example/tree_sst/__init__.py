"""Sentiment of every phrase of a sentence (Stanford Sentiment Treebank), by tree models.

In the order in which data passes them: ``make_sample`` (or a download) -> ``data`` -> ``model``
-> ``metrics``; ``task`` puts them together for the training program, ``train``.
"""
