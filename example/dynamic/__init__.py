"""Nine networks whose path depends on what they compute, written for one image (MNIST).

In the order in which data passes them: ``torchfold`` (the sample, and what reads MNIST's files) ->
``data``, ``canvas`` -> ``layers``, ``residual``, ``encoders`` (what is static) -> ``network``,
``shallow_deep``, ``skipnet``, ``blockdrop``, ``captioning`` (what decides) -> ``networks`` (all by
name) -> ``task``; ``train`` is the program.
"""
