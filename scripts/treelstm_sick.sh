#!/usr/bin/env bash
# Makes the environment if need be and trains the SICK Tree-LSTM on the embedded sample;
# arguments go to the training program (--help lists them).
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export EDB_EXTRAS="${EDB_EXTRAS:-cpu,example}"
python="$(bash "$root/scripts/environment.sh")"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$python" "$root/example/tree_lstm/train.py" "$@"
