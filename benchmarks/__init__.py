"""The benchmarks: modules of ``python -m benchmarks workloads`` in the order of a measurement, and
then the others.

``commands`` (the command line, a module a command; ``arguments``: what they share) -> ``settings``
(one cell of the table) -> ``workloads``, ``treelstm_sick``, ``sst``, ``tasks``, ``tagging``,
``dependencies``, ``sentences``, ``trees`` (samples, model, products) -> ``systems``, ``rivals``
(ways to run it) -> ``measure``, ``gemm``, ``machine`` (one system's row) -> ``runner`` (several
systems in turn, a process each) -> ``output``, ``plots`` (rows as tables and pictures).
``ablation`` measures a workload without one optimisation at a time, and ``gains`` what batching
brings. ``blocks`` measures single cells, ``idioms`` single calls and ``idiom_models`` models as
users write them, ``schedulers`` numbers of batches.
"""

import gluon_edbatch  # noqa: F401  before MXNet, for later versions of NumPy
