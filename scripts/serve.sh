#!/usr/bin/env bash
# Serves the sentiment of trees: makes the environment and the model's folder if need be, and starts
# the server.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/serve.sh [--folder DIR] [OPTION]...

Serves a Tree-LSTM that tells the sentiment of every phrase of a sentence. When it is warm, it says
where, and prints a request for curl. The folder is what is served; without --folder it is
build/served in the checkout, made at first by training for seconds on the embedded sample. A folder
that edb.export wrote is served without MXNet.

Options go to `python -m gluon_edbatch_core.serving`:
  --host HOST  --port N  --grpc-port N  --metrics-port N  --workers N  --max-bytes N  --verbose
  --model-control  --allowed-host NAME  and what `--help` tells

  EDB_VENV     environment with the extra `serve` (default: .venv-serve in the checkout)
  EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh
EOT
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="$root/build/served" given='' options=()
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --folder)
            [[ $# -ge 2 ]] || { usage >&2; exit 2; }
            folder="$2" given=1
            shift ;;
        *) options+=("$1") ;;
    esac
    shift
done

wanted=cpu,example,serve
[[ -f "$folder/model.py" || ! -f "$folder/manifest.json" ]] || wanted=serve
export EDB_VENV="${EDB_VENV:-$root/.venv-serve}"
export EDB_EXTRAS="${EDB_EXTRAS:-$wanted}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python="$(bash "$root/scripts/environment.sh")"
if [[ -z "$given" && ! -d "$folder" ]]; then
    "$python" "$root/example/tree_sst/make_served.py" --out "$folder" >&2
fi
exec "$python" -m gluon_edbatch_core.serving "$folder" ${options[@]+"${options[@]}"}
