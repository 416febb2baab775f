#!/usr/bin/env bash
# Makes the environment if need be and runs the tests; arguments go to pytest.
set -euo pipefail

if [[ "${1:-}" == --help ]]; then
    echo 'usage: bash scripts/test.sh [PYTEST ARGUMENTS]   (-m slow: the slow tests; -m "": all; -n 0: one process)'
    exit 0
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/environment.sh")"
cd "$root"
# Two processes, each file of tests in one of them.
OMP_NUM_THREADS=1 exec "$python" -m pytest -n 2 --dist loadfile "$@"
