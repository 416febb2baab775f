#!/usr/bin/env bash
# Makes the environment if need be and runs the tests.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test.sh [--fast | PYTEST ARGUMENTS]

  (nothing)         what CI runs, under 25 minutes on two cores: scripts/lint.sh and
                    scripts/docs.sh, beside them the package installed with Python 3.11
                    (scripts/test_install.sh --few), then all tests but the slow ones
  --fast            under 3 minutes, for every commit: tests of each stage (tests/support/tiers.py)
  PYTEST ARGUMENTS  go to pytest, and nothing else is run: tests/unit/test_plan.py, -k NAME, -x,
                    -m slow (the tests that take minutes), -m "" (all of them), -n 0 (one process)

Runs in the background, too (nohup bash scripts/test.sh &), and beside other work. The last line is
pytest's summary, or says what else failed; the exit status is not 0 if anything did. The tools of
scripts/lint.sh and scripts/docs.sh need Python 3.11: they are left out with others.

  EDB_VENV, EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh
EOT
}

case "${1:-}" in
    -h | --help) usage; exit 0 ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"
installed=0 linted=0 built=0 passed=0
if [[ $# == 0 ]]; then
    said="$(mktemp)"
    set -m   # a group of its own, which ends with this one
    bash scripts/test_install.sh --python 3.11 --few >"$said" 2>&1 &
    installing=$!
    set +m
    trap 'kill -- "-$installing" 2>/dev/null || true; rm -f "$said"' EXIT
fi
python="$(bash "$root/scripts/environment.sh")"   # it downloads for half of the time
if [[ $# == 0 ]]; then
    if [[ "$("$python" -V)" == 'Python 3.11.'* ]]; then
        bash scripts/lint.sh || linted=$?
        bash scripts/docs.sh || built=$?
    else
        echo "test: scripts/lint.sh and scripts/docs.sh are skipped: they need Python 3.11, and this" \
            "is $("$python" -V)"
    fi
    wait "$installing" || installed=$?
    cat "$said"
fi
# A test that waits for ever (setup.cfg says how long that is) ends its process, and so fails; pytest
# before 8.4 does not know that option.
hanging=()
if "$python" -m pytest --help | grep -q faulthandler_exit_on_timeout; then
    hanging=(-o faulthandler_exit_on_timeout=true)
fi
# Three processes for two cores, as some tests wait for programs that they start; one that is done
# takes half of what another has left.
OMP_NUM_THREADS=1 "$python" -m pytest -n 3 --dist worksteal ${hanging[@]+"${hanging[@]}"} "$@" || passed=$?
if ((linted)); then
    echo 'test: scripts/lint.sh found something, see above'
fi
if ((built)); then
    echo 'test: scripts/docs.sh found something, see above'
fi
if ((installed)); then
    echo 'test: the installation failed, see above'
fi
exit $((installed ? installed : linted ? linted : built ? built : passed))
