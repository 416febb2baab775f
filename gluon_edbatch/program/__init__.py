"""Dynamic networks compiled into programs (DyCL's job, batched)."""
