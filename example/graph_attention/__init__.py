"""Graph networks that tell the relations of words from dependency graphs (UD English EWT).

In the order in which data passes them: ``transition_parser`` (the sample, and what reads files) ->
``data`` -> ``model``; ``train`` is the program that runs them.
"""
