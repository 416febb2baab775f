#!/usr/bin/env bash
# Looks at the style and the types of all sources, with the tools that pyproject.toml pins.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/lint.sh [--fix]

Runs ruff (rules, then format), mypy, the import linter and clang-format, all of them whatever the
others say. The exit status is not 0 if one of them found something. The settings are in
pyproject.toml and .clang-format. Needs Python 3.11 in the environment.

  --fix   lets ruff and clang-format write what they can mend, and then tells what is left

  EDB_VENV, EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh; the extra `lint` has the tools
EOT
}

check=(check) format=(format --check) clang=(--dry-run --Werror)
case "${1:-}" in
    '') ;;
    --fix) check=(check --fix) format=(format) clang=(-i) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
bin="$(dirname "$(bash "$root/scripts/environment.sh")")"
cd "$root"
if [[ ! -x "$bin/ruff" ]]; then
    echo "lint: the tools are not in ${bin%/bin}: they need Python 3.11, and the extra lint" >&2
    exit 2
fi

failed=()
run() {   # a name, and what is run
    local name="$1"
    shift
    echo "lint: $name"
    "$bin/$1" "${@:2}" || failed+=("$name")
}

run ruff ruff "${check[@]}" .
run 'ruff format' ruff "${format[@]}" .
run mypy mypy
run import-linter lint-imports
mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.cc' '*.h')
run clang-format clang-format "${clang[@]}" "${sources[@]}"

if ((${#failed[@]})); then
    printf 'lint: found by %s\n' "$(IFS=,; echo "${failed[*]}")"
    exit 1
fi
echo 'lint: nothing found'
