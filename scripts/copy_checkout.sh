#!/usr/bin/env bash
# Copies what git knows of this checkout, or would add, to a folder: nothing that was built here.
# Where the checkout is a copy without its history, what git would add to a new one.
set -euo pipefail

if [[ $# != 1 || "$1" == -* ]]; then
    echo 'usage: bash scripts/copy_checkout.sh DIR' >&2
    exit 2
fi
mkdir -p "$1"
target="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! -e .git ]]; then
    history="$(mktemp -d)"
    trap 'rm -rf "$history"' EXIT
    export GIT_DIR="$history/git" GIT_WORK_TREE="$PWD"
    git init -q
fi
git ls-files --cached --others --exclude-standard -z |
    while IFS= read -r -d '' name; do [[ ! -e "$name" ]] || printf '%s\0' "$name"; done |
    xargs -0 cp --parents -t "$target"
