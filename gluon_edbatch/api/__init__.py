"""The public API: scopes, the mixin, functions on values, concurrent samples, reused recordings."""
