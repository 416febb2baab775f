"""What `scripts/benchmark_serving.py` measures: models, systems, and the load on them."""
