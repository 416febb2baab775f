#!/usr/bin/env bash
# Installs a CUDA build of MXNet and runs the tests with it, on a machine with or without a GPU.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test_cuda_build.sh [--extra cu117|cu112] [--dir DIR] [PYTEST ARGUMENTS]

Makes an environment, installs '.[cu117]' in it (4 GB of packages to fetch, 7 GB on disk) from a
copy of this checkout, sees that `import gluon_edbatch` finds MXNet and CUDA's libraries, and that
the native operators that were built with the CPU build's headers run; then runs the tests on the
CPU. Where there is no NVIDIA driver, a stand-in of its library is compiled that has no devices.

  --extra  which build (default: cu117)
  --dir    where to make all this, and to leave it; what is there is used again (default: a
           temporary directory, removed at the end)

  EDB_PYTHON  interpreter (default: python3.11)
EOT
}

say() { echo "test_cuda_build: $*" >&2; }

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
extra=cu117
dir=
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --extra) extra="$2"; shift 2 ;;
        --dir) dir="$2"; shift 2 ;;
        *) break ;;
    esac
done
if [[ -z "$dir" ]]; then
    dir="$(mktemp -d)"
    trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir"
dir="$(cd "$dir" && pwd)"
python="$dir/env/bin/python"

# Each function that MXNet or CUDA's runtime may call says that there is no device (100).
make_driver() {
    mkdir -p "$dir/driver"
    printf 'int %s(void) { return 100; }\n' cuInit cuDriverGetVersion cuDeviceGet \
        cuDevicePrimaryCtxRetain cuGetErrorString cuGraphKernelNodeGetParams cuGraphNodeGetType \
        cuLaunchKernel cuModuleGetFunction cuModuleLoadData cuModuleLoadDataEx cuModuleUnload |
        cc -shared -fPIC -Wl,-soname,libcuda.so.1 -x c - -o "$dir/driver/libcuda.so.1"
}

check() {   # away from the checkout
    cd "$dir"
    "$python" -W ignore - <<'EOT'
import os

import gluon_edbatch as edb
import mxnet as mx
from gluon_edbatch.execute.native import library
from gluon_edbatch_core.native import compiler
assert mx.runtime.Features().is_enabled('CUDA'), 'this is no CUDA build'
assert edb.native_available() and library.loaded().parent == compiler.BUILT, library.loaded()
gpus = mx.context.num_gpus()
assert not gpus or not os.path.exists('driver'), 'the stand-in has devices'
print(f'test_cuda_build: MXNet {mx.__version__} with CUDA, {gpus} GPUs, compiled '
      f'modules: {edb.COMPILED}, native operators: {library.loaded().name}')
EOT
}

if ! /sbin/ldconfig -p | grep -q libcuda.so.1; then
    say 'no NVIDIA driver: compiling a stand-in that has no devices'
    make_driver
    export LD_LIBRARY_PATH="$dir/driver"
fi
rm -rf "$dir/source"
bash "$root/scripts/copy_checkout.sh" "$dir/source"
[[ -x "$python" ]] || "${EDB_PYTHON:-python3.11}" -m venv "$dir/env"
say "installing .[$extra] into $dir/env"
"$python" -m pip install --disable-pip-version-check --quiet "$dir/source[$extra]"
(check)
say 'running the tests from a copy of the checkout, installed editable'
rm -f "$dir/env/.gluon-edbatch-installed"   # this copy is not compiled yet, as an earlier one was
export EDB_VENV="$dir/env" EDB_EXTRAS="$extra,nlp,test,example,benchmark"
bash "$dir/source/scripts/environment.sh" >/dev/null
cd "$dir/source"
# Most tests import MXNet first, which then has to find CUDA's libraries itself.
libraries="$("$python" -W ignore -c 'from gluon_edbatch.mx import cuda; print(*cuda.folders(), sep=":")')"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
OMP_NUM_THREADS=1 "$python" -m pytest -n 2 --dist loadfile "$@"
