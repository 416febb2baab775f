#!/usr/bin/env bash
# Makes the environment if need be and runs the tests.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test.sh [--fast | PYTEST ARGUMENTS]

  (nothing)         what CI runs, some 12 minutes on two cores: scripts/lint.sh, scripts/docs.sh,
                    then all tests but the slow ones, and beside them the package installed with
                    Python 3.11 (scripts/test_install.sh --few), which says at the end what it found
  --fast            some 2 minutes, for every commit: tests of each stage (tests/support/tiers.py)
  PYTEST ARGUMENTS  go to pytest, and nothing else is run: tests/unit/test_plan.py, -k NAME, -x,
                    -m slow (the tests that take minutes), -m "" (all of them), -n 0 (one process)

Runs in the background, too (nohup bash scripts/test.sh &), and beside other work. The exit status is
not 0 if anything failed, and the last lines say what but tests did. The tools of
scripts/lint.sh and scripts/docs.sh need Python 3.11: they are left out with others.

  EDB_VENV, EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh
EOT
}

case "${1:-}" in
    -h | --help) usage; exit 0 ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# What runs beside other things, in groups that end with this one: a name, and a command. What it
# said, and whether it failed, comes when it is waited for.
beside=() failed=()
said="$(mktemp -d)"
trap 'for name in ${beside[@]+"${beside[@]}"}; do kill -- "-$(cat "$said/$name.pid")" 2>/dev/null || true; done
    rm -rf "$said"' EXIT
begin() {
    set -m
    "${@:2}" >"$said/$1" 2>&1 &
    set +m
    echo $! >"$said/$1.pid"
    beside+=("$1")
}
finish() {
    wait "$(cat "$said/$1.pid")" || failed+=("$1")
    cat "$said/$1"
}

if [[ $# == 0 ]]; then   # what the installation compiles, the environment takes
    export EDB_WHEEL="$said/wheel"
    mkdir "$EDB_WHEEL"
    begin installation bash scripts/test_install.sh --python 3.11 --few --wheel "$EDB_WHEEL"
fi
python="$(bash "$root/scripts/environment.sh")"
unset EDB_WHEEL
if [[ $# == 0 ]]; then
    if [[ "$("$python" -V)" == 'Python 3.11.'* ]]; then
        begin lint bash scripts/lint.sh
        begin docs bash scripts/docs.sh
        finish lint
        finish docs
    else
        echo "test: scripts/lint.sh and scripts/docs.sh are skipped: they need Python 3.11, and this" \
            "is $("$python" -V)"
    fi
fi
# A test that waits for ever (setup.cfg says how long that is) ends its process, and so fails; pytest
# before 8.4 does not know that option.
hanging=()
if "$python" -m pytest --help | grep -q faulthandler_exit_on_timeout; then
    hanging=(-o faulthandler_exit_on_timeout=true)
fi
# Three processes for two cores, as some tests wait for programs that they start; one that is done
# takes half of what another has left.
passed=0
OMP_NUM_THREADS=1 "$python" -m pytest -n 3 --dist worksteal ${hanging[@]+"${hanging[@]}"} "$@" || passed=$?
[[ $# != 0 ]] || finish installation
for name in ${failed[@]+"${failed[@]}"}; do
    echo "test: $name failed, see above"
done
exit $((passed ? passed : ${#failed[@]}))
