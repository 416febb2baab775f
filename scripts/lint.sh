#!/usr/bin/env bash
# Looks at the style and the types of all sources, with the tools that pyproject.toml pins.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/lint.sh [--fix] [TOOL]...

Runs the tools that are named, or all of them, whatever the others say:

  ruff          rules, import order included
  format        ruff's format of Python
  mypy          types
  imports       the import linter: a stage imports earlier stages only
  clang-format  format of C++ and C
  docstrings    docstrings stand by themselves: none begins with "The same" or "Of"
  codespell     common misspellings, in all but data
  lines         lines of the package and the runtime, which may be as many as scripts/lines.txt says

The exit status is not 0 if one of them found something. The settings are in pyproject.toml and
.clang-format. Needs Python 3.11 in the environment.

  --fix   lets ruff and clang-format write what they can mend, and then tells what is left

  EDB_VENV, EDB_PYTHON, EDB_EXTRAS  see scripts/environment.sh; the group `lint` has the tools
EOT
}

check=(check) format=(format --check) clang=(--dry-run --Werror) tools=()
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --fix) check=(check --fix) format=(format) clang=(-i) ;;
        ruff | format | mypy | imports | clang-format | docstrings | codespell | lines) tools+=("$1") ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done
((${#tools[@]})) || tools=(ruff format mypy imports clang-format docstrings codespell lines)

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export EDB_EXTRAS="${EDB_EXTRAS:-cpu,lint}"
bin="$(dirname "$(bash "$root/scripts/environment.sh")")"
cd "$root"
if [[ ! -x "$bin/ruff" ]]; then
    echo "lint: the tools are not in ${bin%/bin}: they need Python 3.11, and the group lint" >&2
    exit 2
fi

few_enough_lines() {
    local most lines
    most="$(cat scripts/lines.txt)"
    lines="$(git ls-files gluon_edbatch gluon_edbatch_core gluon_edbatch_runtime | grep -E '\.(py|pxd|pyx|h|cc)$' | xargs cat | wc -l)"
    if ((lines > most)); then
        echo "the package has $lines lines, and $most are its budget: remove some, or raise"
        echo "scripts/lines.txt in a commit that says what the lines are worth"
        return 1
    fi
}

run() {
    case "$1" in
        ruff) "$bin/ruff" "${check[@]}" . ;;
        format) "$bin/ruff" "${format[@]}" . ;;
        mypy) "$bin/mypy" ;;
        imports) "$bin/lint-imports" ;;
        clang-format)
            git ls-files -z --cached --others --exclude-standard '*.cc' '*.h' |
                xargs -0 "$bin/clang-format" "${clang[@]}" ;;
        docstrings) "$bin/python" scripts/check_docstrings.py ;;
        codespell)
            git ls-files -z --cached --others --exclude-standard '*.py' '*.md' '*.sh' '*.toml' '*.h' '*.cc' '*.yml' |
                xargs -0 "$bin/codespell" ;;
        lines) few_enough_lines ;;
    esac
}

failed=()
for tool in "${tools[@]}"; do
    echo "lint: $tool"
    run "$tool" || failed+=("$tool")
done
if ((${#failed[@]})); then
    echo "lint: found by ${failed[*]}"
    exit 1
fi
echo 'lint: nothing found'
