"""The shared parts of the examples' training programs.

An example supplies a `task.Task`: its data, model, loss and figures. ``program.run_program`` makes
a program of it: ``options`` (the command line) and ``checkpoint`` -> ``run`` (the training loop)
-> the final table. ``words`` and ``word_task`` are for tasks about words,
``vocab_task`` about sentences, ``spans`` and ``tag_task`` for taggers.
"""
