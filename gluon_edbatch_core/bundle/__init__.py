"""Bundles: folders that run without MXNet, with a manifest of data, and subgraphs for NumPy.

``manifest`` writes and checks such folders; ``numpy_operators`` and ``cell_program`` run static
subgraphs.
"""

from ..compiled import load

load(f'{__name__}.sample_reader')
