#!/usr/bin/env bash
# Copies what git knows of this checkout, or would add, to a folder: nothing that was built here.
set -euo pipefail

if [[ $# != 1 || "$1" == -* ]]; then
    echo 'usage: bash scripts/copy_checkout.sh DIR' >&2
    exit 2
fi
mkdir -p "$1"
target="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git ls-files --cached --others --exclude-standard -z |
    while IFS= read -r -d '' name; do [[ ! -e "$name" ]] || printf '%s\0' "$name"; done |
    xargs -0 cp --parents -t "$target"
