#!/usr/bin/env bash
# Runs exported bundles in an environment without MXNet: numbers, batches and schedules are compared.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test_runtime.sh [--python VERSION] [--compiled] [--sdist] DIR

Makes an environment of its own, installs the package there with the newest NumPy that it takes, and
runs what `python tests/runtime/exported.py write DIR` has left in DIR; and if there is DIR/programs, of
`python tests/runtime/forced_paths.py write DIR/programs`, that with ONNX Runtime. Python warnings are
errors. The last line says what ran; the exit status is 3 if there is no such Python, and another than 0 if
anything differs.

  --python VERSION  such as 3.12 (default: the newest of 3.14 to 3.9 that is there)
  --compiled        with Cython, so that what can be compiled is (about a minute)
  --sdist           from a source distribution, away from the checkout

Interpreters are looked for as python3.X on the path, and among those of pyenv. Needs the network
or a folder that pip knows, for NumPy, setuptools and ONNX Runtime.
EOT
}

versions=(3.14 3.13 3.12 3.11 3.10 3.9) compiled=no sdist=no folder=
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --python) [[ $# -gt 1 ]] || { usage >&2; exit 2; }; versions=("$2"); shift 2 ;;
        --compiled) compiled=yes; shift ;;
        --sdist) sdist=yes; shift ;;
        -*) usage >&2; exit 2 ;;
        *) folder="$1"; shift ;;
    esac
done
[[ -n "$folder" ]] || { usage >&2; exit 2; }

find_python() {   # a name on the path may be a stand-in that runs nothing
    local version candidate
    for version in "${versions[@]}"; do
        for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
            if "$candidate" -c "import sys, venv, ensurepip
sys.exit('%d.%d' % sys.version_info[:2] != '$version')" >/dev/null 2>&1; then
                echo "$candidate"
                return
            fi
        done
    done
    return 1
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="$(cd "$folder" && pwd)"
unset PYTHONPATH VIRTUAL_ENV
base="$(find_python)" || { echo "test_runtime: no Python ${versions[*]} with venv is there"; exit 3; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$base" -m venv "$work/env"
python="$work/env/bin/python"
tools=(numpy 'setuptools>=77')
[[ $compiled == no ]] || tools+=('Cython>=3')
[[ ! -d "$folder/programs" ]] || tools+=(onnxruntime)
"$python" -m pip install --quiet "${tools[@]}"
bash "$root/scripts/copy_checkout.sh" "$work/checkout"   # builds at the same time are none of ours
source="$work/checkout"
if [[ $sdist == yes ]]; then
    (cd "$source" && "$python" setup.py --quiet sdist --dist-dir "$work")
    mkdir "$work/apart"
    source="$(ls "$work"/gluon_edbatch-*.tar.gz)"
fi
"$python" -m pip install --quiet --no-build-isolation --no-deps "$source"
cd "$work"
"$python" -W error "$root/tests/runtime/exported.py" check "$folder"
[[ ! -d "$folder/programs" ]] || "$python" -W error "$root/tests/runtime/forced_paths.py" check "$folder/programs"
"$python" -W error - "$compiled" <<'EOT'
import sys

import gluon_edbatch_runtime as edb
import numpy as np

assert 'mxnet' not in sys.modules
assert edb.COMPILED == (sys.argv[1] == 'yes'), edb.COMPILED
how = 'compiled' if edb.COMPILED else 'as Python'
print(f'test_runtime: Python {sys.version.split()[0]}, NumPy {np.__version__}, {how}: all equal')
EOT
