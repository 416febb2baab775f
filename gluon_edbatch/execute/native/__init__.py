"""Native operators for the CPU: whole runs of batches in one call. Optional."""
