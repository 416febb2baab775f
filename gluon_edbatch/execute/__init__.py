"""Run a plan, forward and backward, by the available backends; `evaluate` runs an evaluation."""
