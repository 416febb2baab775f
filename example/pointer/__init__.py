"""A pointer network that puts the words of shuffled sentences in order (UD English EWT).

In the order in which data passes them: ``transition_parser`` (the sample, and what reads files) ->
``data`` -> ``model`` -> ``metrics``; ``train`` is the program that runs them.
"""
