"""Run batches by MXNet's own operators: one compiled call each, on any device."""
