"""What users call: scopes, the mixin, functions on values, concurrent samples, reused pieces."""
