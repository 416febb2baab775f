"""Recording: the user's code runs once per sample, and its calls become nodes."""
