"""Models, systems and load for the measurements of `benchmarks/serving/__main__.py`."""
