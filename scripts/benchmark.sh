#!/usr/bin/env bash
# Measures a table of systems and a sweep over minibatch sizes; writes CSV and plots.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: bash scripts/benchmark.sh [--workload NAME] [--data DIR] [--out DIR] [--quick]
                                 [OPTIONS OF python -m benchmarks workloads ...]

Writes DIR/table.jsonl and .csv (all systems at one minibatch size), DIR/sweep.jsonl and .csv
(minibatches of 1 to 512), and plots of both; DIR is results/ by default. The table is printed.
Other options go to python -m benchmarks workloads as they are: --hidden, --embed, --threads, --cpus, --repeat, …

  --workload NAME  default: treelstm-sick
  --data DIR       the data sets (default: the samples that come with the examples)
  --batch-size N   of the table (default: 256)
  --quick          small sizes and few repeats: to see that all works

  PYTHON           interpreter to measure with (default: that of scripts/environment.sh)
  SWEEP_SIZES      minibatch sizes of the sweep (default: 1,2,4,8,16,32,64,128,256,512)
  SWEEP_SYSTEMS    systems of the sweep (default: depth,agenda,plain-hybridized,manual, and
                   manual-torch where PyTorch is installed; for other workloads than
                   treelstm-sick depth,agenda,unbatched-hybridized)
EOF
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
workload=treelstm-sick
out="$root/results"
batch_size=256
sizes="${SWEEP_SIZES:-1,2,4,8,16,32,64,128,256,512}"
options=()
while (($#)); do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --workload) workload="$2"; shift 2 ;;
        --out) out="$2"; shift 2 ;;
        --batch-size) batch_size="$2"; shift 2 ;;
        --quick)
            batch_size=8
            sizes="${SWEEP_SIZES:-1,4}"
            options+=(--hidden 16 --embed 16 --repeat 2 --minibatches 1)
            shift ;;
        *) options+=("$1"); shift ;;
    esac
done

export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
export EDB_EXTRAS="${EDB_EXTRAS:-cpu,example,benchmark}"
python="${PYTHON:-$(bash "$root/scripts/environment.sh")}"
systems=depth,agenda,unbatched-hybridized
if [[ "$workload" == treelstm-sick ]]; then
    systems=depth,agenda,plain-hybridized,manual
    "$python" -c 'import torch' 2>/dev/null && systems+=,manual-torch
fi
systems="${SWEEP_SYSTEMS:-$systems}"

measure() {   # NAME OPTIONS...: a system that fails is reported, and the others go on
    local name="$1"
    shift
    "$python" -m benchmarks workloads "$workload" --mode train,infer --json \
        ${options[@]+"${options[@]}"} "$@" >"$out/$name.jsonl" || status=$?
}

status=0
mkdir -p "$out"
measure table --scheduler all --batch-size "$batch_size"
measure sweep --scheduler "$systems" --batch-size "$sizes"
"$python" -m benchmarks plots --out "$out" "$out/table.jsonl" "$out/sweep.jsonl"
exit "$status"
