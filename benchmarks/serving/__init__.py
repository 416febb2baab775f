"""What `benchmarks/serving/__main__.py` measures: models, systems, and the load on them."""
