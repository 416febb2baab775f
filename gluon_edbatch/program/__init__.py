"""Compile dynamic networks into batched programs, as DyCL compiles them for single samples."""
