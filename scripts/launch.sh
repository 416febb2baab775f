#!/usr/bin/env bash
# Runs a command as several workers, with servers beside them, on this machine or on several.
set -euo pipefail

case "${1:-}" in
    '' | -h | --help)
        cat <<'EOT'
usage: bash scripts/launch.sh -n WORKERS [-s SERVERS] [-H HOSTS] [--cpus N] [OPTION]... COMMAND...

    bash scripts/launch.sh -n 2 -s 1 python example/tree_lstm/train.py --kvstore dist_sync

Makes the environment if need be; `python` in COMMAND is its interpreter. docs/distributed.md says
what several machines need.

EOT
        ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export EDB_EXTRAS="${EDB_EXTRAS:-cpu,example}"
python="$(bash "$root/scripts/environment.sh")"
export PATH="$(dirname "$python"):$PATH"
exec "$python" -I "$root/gluon_edbatch/distributed/launch.py" "${@:---help}"
