"""Measure training on several workers: what each does in a step, and what more would reach."""
