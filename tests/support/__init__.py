"""Support code for several test files, which do not import each other."""
