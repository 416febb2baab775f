"""Complete words that are written without vowels, by a decoder and beam search.

In the order in which data passes them: ``make_sample`` (or real data) -> ``data`` -> ``model`` ->
``beam``; ``train`` is the program that runs them.
"""
