"""Folders that leave MXNet: a manifest that is data, and subgraphs that NumPy runs. NumPy only.

``manifest`` writes such folders and checks them, whatever they hold; ``numpy_operators`` and
``cell_program`` run static subgraphs. This room is the same in ``gluon_edbatch_runtime``, as
``graph`` and ``schedule`` are.
"""
