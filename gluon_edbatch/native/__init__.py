"""The command ``python -m gluon_edbatch.native``; `execute.native` has the operators themselves."""
