#!/usr/bin/env bash
# Installs the package with every Python, from wheel and sdist, with and without compilers.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test_install.sh [--python VERSION]... [--few] [--keep] [--wheel DIR]

With each Python from 3.9 to 3.13, in an environment that is empty at first and away from the
checkout: `pip install '.[cpu]'` (from a clean copy; pip makes a wheel and installs it) and an
installation from the sdist, each where compilers work and where they do not. Then a small model is
trained (scripts/check_install.py) where no compiler can be run, and the compiled parts have to be
there, or said to be missing; native operators of all levels have to agree (tests/runtime/check_levels.py).
Prints a table; the exit status is not 0 if anything failed, or a Python is not there. Needs the
network; about a minute for each of the four ways on two free cores.

  --python VERSION  this one only, such as 3.11; several times for several
  --few             two of the four ways, which meet all of it once: the sdist with compilers and
                    the wheel without
  --wheel DIR       leave there the wheel that is built from the sdist where compilers work, for
                    scripts/environment.sh, or a file `none` if there is none
  --keep            leave the directory of logs and environments, whose name is printed

With Python 3.13 MXNet is installed without its requirements, and NumPy 2 with them, as
docs/guides/install.md says.

Interpreters are looked for as python3.X on the path, and among those of pyenv. Without compilers
means CC and CXX that fail (wheel), or that are not there (sdist).
EOT
}

say() { echo "test_install: $*" >&2; }

pythons=()
ways=('wheel yes' 'wheel none' 'sdist yes' 'sdist none')
keep=no wheels=''
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --python) [[ $# -gt 1 ]] || { usage >&2; exit 2; }; pythons+=("$2"); shift 2 ;;
        --few) ways=('sdist yes' 'wheel none'); shift ;;
        --wheel) [[ $# -gt 1 ]] || { usage >&2; exit 2; }; wheels="$(mkdir -p "$2" && cd "$2" && pwd)"; shift 2 ;;
        --keep) keep=yes; shift ;;
        *) usage >&2; exit 2 ;;
    esac
done
[[ ${#pythons[@]} -gt 0 ]] || pythons=(3.9 3.10 3.11 3.12 3.13)

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
work="$(mktemp -d)"
leave_wheel() { [[ -z "$wheels" || -n "$(ls "$wheels")" ]] || touch "$wheels/none"; }
if [[ $keep == yes ]]; then
    say "everything is in $work"
    trap leave_wheel EXIT
else
    trap 'leave_wheel; rm -rf "$work"' EXIT
fi
unset PYTHONPATH VIRTUAL_ENV CC CXX GLUON_EDBATCH_NATIVE GLUON_EDBATCH_COMPILED
export GLUON_EDBATCH_CACHE="$work/cache" PIP_DISABLE_PIP_VERSION_CHECK=1 OMP_NUM_THREADS=1
export PIP_NO_COMPILE=0   # as if --no-compile were given, to the pip of a build, too: few modules are imported

find_python() {   # a name on the path may be a stand-in that runs nothing
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c "import sys, venv, ensurepip
sys.exit('%d.%d' % sys.version_info[:2] != '$1')" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_sdist() {
    bash "$root/scripts/copy_checkout.sh" "$work/checkout"
    "$1" -m venv "$work/tools"
    "$work/tools/bin/python" -m pip install --quiet 'setuptools>=77'
    (cd "$work/checkout" && "$work/tools/bin/python" -c "
from setuptools import build_meta
build_meta.build_sdist('$work')")
}

# Called where a failure does not end the script: the last command's status is what counts.
# Installs from wheel or sdist, with compilers or without.
install() {
    local environment="$1" from="$2" compilers="$3" source made isolation=() extra='[cpu]'
    "$environment/bin/python" -m pip uninstall --quiet --yes gluon-edbatch
    made="$(mktemp -d -p "$work")"
    if [[ $from == wheel ]]; then
        source="$(mktemp -d -p "$work")"
        bash "$root/scripts/copy_checkout.sh" "$source"
    else
        source="$(ls "$work"/gluon_edbatch-*.tar.gz)"
    fi
    (
        if [[ $compilers == none && $from == wheel ]]; then
            export CC=/bin/false CXX=/bin/false
        elif [[ $compilers == none ]]; then
            export CC=/no/such/cc CXX=/no/such/c++
        fi
        cd "$work" || exit 1
        if "$environment/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
            "$environment/bin/python" -m pip install --no-deps mxnet==1.9.1 &&
                "$environment/bin/python" -m pip install requests graphviz 'setuptools>=77' wheel 'Cython>=3.1' ||
                exit 1
            isolation=(--no-build-isolation) extra=
        fi
        # What `pip install` does of both, so that others can have the wheel.
        "$environment/bin/python" -m pip wheel --verbose ${isolation[@]+"${isolation[@]}"} \
            --no-deps --wheel-dir "$made" "$source" || exit 1
        if [[ -n "$wheels" && "$from $compilers" == 'sdist yes' ]]; then
            cp "$made"/*.whl "$wheels/.part"   # `ls` does not see it
            mv "$wheels/.part" "$wheels/$(basename "$made"/*.whl)"
        fi
        "$environment/bin/python" -m pip install --verbose "$(ls "$made"/*.whl)$extra"
    )
}

check() {
    local environment="$1" compilers="$2" expected=compiled lines
    [[ $compilers == yes ]] || expected=python
    mkdir -p "$work/away"
    cd "$work/away"
    CC=/no/such/cc CXX=/no/such/c++ "$environment/bin/python" -W ignore \
        "$root/scripts/check_install.py" --expect "$expected" 2>"$work/said" ||
        { cat "$work/said" >&2; return 1; }
    cat "$work/said" >&2
    lines="$(grep -c slower "$work/said" || true)"
    [[ $lines == $([[ $expected == compiled ]] && echo 0 || echo 2) ]] ||
        { say "$lines lines say that something is slower"; return 1; }
    [[ $expected == python ]] || CC=/no/such/cc CXX=/no/such/c++ \
        "$environment/bin/python" "$root/tests/runtime/check_levels.py" >&2
}

table=()
failed=no
note() {   # a row of the table
    table+=("$(printf '%-7s %-6s %-9s %-7s %s' "$@")")
    [[ "${4:-}" == ok ]] || failed=yes
}

one_way() {
    local version="$1" environment="$2" from="$3" compilers="$4" log begin=$SECONDS result
    log="$work/$version-$from-$compilers.log"
    say "Python $version, $from, compilers: $compilers"
    if install "$environment" "$from" "$compilers" >"$log" 2>&1 &&
        result="$(check "$environment" "$compilers" 2>>"$log")"; then
        note "$version" "$from" "$compilers" ok "$result ($((SECONDS - begin)) s)"
    else
        tail -n 25 "$log" >&2
        note "$version" "$from" "$compilers" FAILED "${result:-}"
    fi
}

for version in "${pythons[@]}"; do
    if ! python="$(find_python "$version")"; then
        say "there is no Python $version"
        note "$version" - - MISSING ''
        continue
    fi
    if [[ ! -d "$work/tools" ]]; then
        say 'making the sdist'
        make_sdist "$python" >"$work/sdist.log" 2>&1 || { cat "$work/sdist.log" >&2; exit 1; }
    fi
    "$python" -m venv "$work/$version"
    for way in "${ways[@]}"; do
        read -r from compilers <<<"$way"
        one_way "$version" "$work/$version" "$from" "$compilers"
        leave_wheel
    done
    rm -rf "${work:?}/$version"
done

printf '%-7s %-6s %-9s %-7s %s\n' Python from compilers result ''
printf '%s\n' "${table[@]}"
[[ $failed == no ]]
