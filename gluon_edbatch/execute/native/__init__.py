"""Native operators for the CPU, optional: run many batches in one call."""
