"""A model that reads a sentence again until it knows its sentiment (Stanford Sentiment Treebank).

In the order in which data passes them: ``tree_sst`` (the sample, and what reads files) ->
``sentence_sst`` (sentences, their figures) -> ``model`` -> ``task``; ``train`` is the program.
"""
