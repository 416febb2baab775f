#!/usr/bin/env bash
# What the fetch_*.sh share. Sourced, not run; they define "usage".
set -euo pipefail

die() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }

need() {   # PROGRAM...
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || die "needs $program"
    done
}

only_directory() {   # ARGUMENT...: leaves the one there has to be in "target"
    [[ $# -gt 0 ]] || { usage >&2; exit 2; }
    [[ "$1" != -h && "$1" != --help ]] || { usage; exit 0; }
    [[ "$1" != -* ]] || die "unknown option $1 (see --help)"
    [[ $# == 1 ]] || die 'one directory, please (see --help)'
    target="$1"
}

has_sum() { [[ -f "$2" && "$(sha256sum <"$2" | cut -d' ' -f1)" == "$1" ]]; }

fetch_files() {   # URL DIR <SUMS: files below URL to DIR, but those that are there and whole
    local sum name file
    need curl sha256sum
    while read -r sum name; do
        file="$2/$name"
        has_sum "$sum" "$file" && continue
        echo "$(basename "$2")/$name"
        mkdir -p "$(dirname "$file")"
        curl --fail --silent --show-error --location --retry 3 --output "$file.part" "$1/$name"
        has_sum "$sum" "$file.part" ||
            die "$name is not the file expected: its SHA-256 differs (left as $file.part)"
        mv "$file.part" "$file"
    done
}
