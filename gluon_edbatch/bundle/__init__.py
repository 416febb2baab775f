"""Bundles: folders that run without MXNet, with a manifest of data, and subgraphs for NumPy.

``manifest`` writes and checks such folders; ``numpy_operators`` and ``cell_program`` run static
subgraphs. The package needs NumPy only, and is copied to ``gluon_edbatch_runtime``, as ``graph``
and ``schedule`` are.
"""
