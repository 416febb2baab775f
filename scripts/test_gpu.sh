#!/usr/bin/env bash
# On a machine with a GPU: the tests that need one, and the benchmarks on it.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/test_gpu.sh [--data DIR]

Makes the environment if need be, with a CUDA build of MXNet (see scripts/environment.sh;
EDB_EXTRAS, default cu117,nlp,test,example,benchmark), then runs the tests marked "gpu" and
python -m benchmarks with --ctx gpu, on the embedded samples or on the data in DIR. Where there is
no GPU that is said, and the exit status is 1.
EOT
}

data=()
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --data) [[ $# -gt 1 ]] || { usage >&2; exit 2; }; data=(--data "$2"); shift 2 ;;
        *) usage >&2; exit 2 ;;
    esac
done
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
ls /dev/nvidia[0-9]* >/dev/null 2>&1 || { echo 'test_gpu: this machine has no GPU' >&2; exit 1; }

export EDB_VENV="${EDB_VENV:-${VIRTUAL_ENV:-$root/.venv-gpu}}"
export EDB_EXTRAS="${EDB_EXTRAS:-cu117,nlp,test,example,benchmark}"
python="$(bash "$root/scripts/environment.sh")"
cd "$root"
count="$("$python" -W ignore -c 'import gluon_edbatch, mxnet; print(mxnet.context.num_gpus())')"
[[ "$count" -gt 0 ]] || { echo 'test_gpu: MXNet sees no GPU' >&2; exit 1; }
echo "test_gpu: $count GPUs" >&2

# Most tests and benchmarks import MXNet first, which then has to find CUDA's libraries itself.
libraries="$("$python" -W ignore -c 'from gluon_edbatch.mx import cuda; print(*cuda.folders(), sep=":")')"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
"$python" -m pytest -m gpu -n 0
for workload in treelstm-sick lattice-lstm bilstm-tagger; do
    "$python" python -m benchmarks workloads "$workload" --mode train,infer --batch-size 64,256 \
        --scheduler fsm,unbatched-hybridized --ctx gpu --repeat 3 "${data[@]}"
done
