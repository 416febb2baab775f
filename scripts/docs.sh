#!/usr/bin/env bash
# Makes the environment if need be and builds the documentation.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/docs.sh [--serve | MKDOCS' OPTIONS OF build]

  (nothing)  judges the prose of the pages and builds build/site (open build/site/index.html): a long
             sentence or page is an error, and so is a warning, a link inside the repository that
             leads nowhere, a page that no menu has, a parameter that a docstring names and that is
             not there
  --serve    shows it at 127.0.0.1:8000, anew whenever a page changes

The tools are those of the group `docs`, for Python 3.11.

  EDB_VENV, EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh
EOT
}

command=(build --strict)  # with --quiet warnings would not count
case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    --serve) command=(serve) && shift ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export EDB_EXTRAS="${EDB_EXTRAS:-cpu,docs}"
python="$(bash "$root/scripts/environment.sh")"
cd "$root"
if ! "$python" -c 'import material, mkdocstrings, proselint, textstat' 2>/dev/null; then
    echo "docs: the tools are not in this environment: they need Python 3.11, and the group docs" >&2
    exit 2
fi
if [[ "${command[0]}" == build ]]; then
    "$python" -m tests.support.prose
fi
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs "${command[@]}" "$@"
if [[ "${command[0]}" == build ]]; then
    echo "docs: build/site/index.html"
fi
