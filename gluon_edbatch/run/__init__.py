"""Runs a program that imports MXNet before gluon_edbatch: ``python -m gluon_edbatch.run``."""
