"""The engine and the server, whatever runs the models: MXNet, or ``gluon_edbatch_runtime``."""
