"""Programs that branch over values, and the interpreter that regroups samples at each branch."""
