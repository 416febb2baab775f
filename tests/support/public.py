"""List the modules that have pages in the reference."""

import gluon_edbatch as edb
from gluon_edbatch import schedule, testing

MODULES = [
    edb,
    edb.data,
    edb.distributed,
    edb.estimator,
    edb.rnn,
    edb.serving,
    edb.visualize,
    schedule,
    testing,
]
