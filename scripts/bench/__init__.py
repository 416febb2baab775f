"""What scripts/benchmark.py is made of, in the order in which a measurement passes it.

``settings`` (one cell of the table) -> ``workloads``, ``treelstm_sick``, ``sst`` (samples, model,
products) -> ``systems``, ``rivals`` (ways to run it) -> ``measure``, ``gemm``, ``machine`` (one
system's row) -> ``runner`` (several systems in turn, a process each) -> ``output`` (rows as tables).
"""
