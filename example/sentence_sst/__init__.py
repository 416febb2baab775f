"""Sentiment of whole sentences (Stanford Sentiment Treebank), by a Transformer.

In the order in which data passes them: ``tree_sst`` (the sample, and what reads files) -> ``data``
-> ``model`` -> ``metrics``; ``train`` is the program that runs them.
"""
