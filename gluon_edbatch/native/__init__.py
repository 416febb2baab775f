"""``python -m gluon_edbatch.native``; the operators themselves are in `execute.native`."""
