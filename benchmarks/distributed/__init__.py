"""Training on several workers: what each does in a step, and what more of them would reach."""
