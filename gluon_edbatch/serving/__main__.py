"""The command line: serve folders of models by REST and gRPC."""

from gluon_edbatch_core.serving.__main__ import main

if __name__ == '__main__':
    main()
