"""Programs that branch over values, and the machine that regroups samples at each branch."""
