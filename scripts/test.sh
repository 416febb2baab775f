#!/usr/bin/env bash
# Makes the environment if need be and runs the tests; arguments go to pytest.
set -euo pipefail

if [[ "${1:-}" == --help ]]; then
    echo 'usage: bash scripts/test.sh [PYTEST ARGUMENTS]   (-m slow: the slow tests; -m "": all)'
    exit 0
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$(bash "$root/scripts/environment.sh")"
cd "$root"
OMP_NUM_THREADS=1 exec "$python" -m pytest "$@"
