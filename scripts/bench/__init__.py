"""What the benchmarks are made of: scripts/benchmark.py in the order in which a measurement passes
it, and then the others.

``settings`` (one cell of the table) -> ``workloads``, ``treelstm_sick``, ``sst``, ``tagging``
(samples, model, products) -> ``systems``, ``rivals`` (ways to run it) -> ``measure``, ``gemm``,
``machine`` (one system's row) -> ``runner`` (several systems in turn, a process each) ->
``output`` (rows as tables). ``ablation`` measures a workload without one optimisation at a time,
``gains`` what batching brings, ``blocks`` single cells.
"""
