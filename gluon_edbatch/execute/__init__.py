"""Running a plan, forward and backward: an evaluation (`evaluate`), by the backends that there
are."""
