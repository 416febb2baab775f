"""torchfold's four examples: powers, trees with two outputs, MNIST forward, MNIST with training.

``program`` has what the programs ``powers``, ``trees``, ``mnist_forward`` and ``mnist_train``
share; ``make_sample`` (or a download) -> ``data`` -> ``model`` are those of MNIST.
"""
