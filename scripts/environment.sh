#!/usr/bin/env bash
# Makes sure that there is a Python environment with this checkout and all it needs.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: python="$(bash scripts/environment.sh)"

Prints the path of a Python interpreter that has this checkout installed (editable) with the extras
that are asked for; everything else it says goes to standard error. The first run makes the
environment. Later runs find it ready, or add the extras that it lacks. Without a C compiler it has
no gluonnlp, and so not what most examples need. An environment that has gluon_edbatch from another
checkout is refused.

The environment is, in this order: $EDB_VENV, the active one ($VIRTUAL_ENV), .venv in the checkout.

  EDB_VENV    directory of the virtual environment; made if it is not there
  EDB_PYTHON  interpreter to make it with (default: the first of python3.11, 3.12, 3.10, 3.9)
  EDB_EXTRAS  extras and dependency groups to install (default: cpu,nlp,test,example,benchmark,serve,lint,docs); on a CUDA machine
              put cu112 or cu117 in the place of cpu; without either there is no MXNet, for exported models
  EDB_WHEEL   a folder where another script builds a wheel of this checkout, or leaves something else
              if it cannot: what is compiled there is taken, and not compiled again
EOF
}

say() { echo "environment: $*" >&2; }
die() { say "$*"; exit 1; }

if [[ "${BASH_SOURCE[0]}" != "$0" ]]; then
    echo 'environment: call me, do not source me: python="$(bash scripts/environment.sh)"' >&2
    return 1
fi
case "${1:-}" in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${EDB_VENV:-${VIRTUAL_ENV:-$root/.venv}}"
extras="${EDB_EXTRAS:-cpu,nlp,test,example,benchmark,serve,lint,docs}"
python="$venv/bin/python"
stamp="$venv/.gluon-edbatch-installed"
groups=,test,benchmark,lint,docs,   # of pyproject.toml; what else is asked for is an extra

# The interpreter counts too: an environment made anew with another Python has to be filled again.
# So do the sources that are compiled, and whether there is a compiler.
fingerprint() {
    { echo "$root"; command -v ${CC:-cc} || true; readlink -f "$python"; cat "$root"/{pyproject.toml,setup.{cfg,py}}
      find "$root"/gluon_edbatch* -name '*.pxd' | sort | while read -r types; do
          cat "$types" "${types%.pxd}.py"
          cat "${types%/*}"/*.h 2>/dev/null || true
      done; } | cksum
}

# The stamp's lines: the fingerprint, and the extras that are installed.
is_current() { [[ -x "$python" && -f "$stamp" && "$(head -n 1 "$stamp")" == "$(fingerprint)" ]]; }

is_ready() {
    is_current || return
    local extra installed
    installed=",$(sed -n 2p "$stamp"),"
    for extra in ${extras//,/ }; do
        [[ "$installed" == *",$extra,"* ]] || return
    done
}

# 3.9 or later, with venv: a name on the path may be a stand-in that runs nothing.
is_usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' \
        >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${EDB_PYTHON:-python3.11 python3.12 python3.10 python3.9 python3}; do
        if is_usable "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    die "no usable Python among ${EDB_PYTHON:-python3.11, 3.12, 3.10, 3.9, python3}: gluon_edbatch" \
        "needs Python 3.9 to 3.13 with venv (on Debian: apt-get install python3.11-venv);" \
        "EDB_PYTHON names another interpreter"
}

# Whether pip can compile extensions; a broken compiler counts as none.
can_compile() {
    local include
    include="$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')"
    echo '#include <Python.h>' | ${CC:-cc} -I"$include" -x c -c -o /dev/null - 2>/dev/null
}

# gluonnlp has a part in C, and there are no wheels of it.
drop_what_needs_a_compiler() {
    "$python" -c 'import gluonnlp' >/dev/null 2>&1 && return
    can_compile && return
    say 'no working C compiler with header files of Python (on Debian: apt-get install gcc' \
        'python3-dev): recording and scheduling run as Python, slower; leaving out gluonnlp,' \
        'which most examples, their tests and benchmarks need'
    requested="$(without nlp "$(without example "$requested")")"
}

without() { echo ",$2," | sed "s/,$1,/,/; s/^,//; s/,$//"; }

# What was installed before, and what is asked for now; one build of MXNet only.
united() {
    local extra found="$1"
    for extra in ${2//,/ }; do
        [[ ",$found," == *",$extra,"* || ( "$extra" == cpu && ",$found," == *,cu1* ) ]] ||
            found+=",$extra"
    done
    echo "$found"
}

# The folder that gluon_edbatch was installed from; nothing where it is not, or not from a folder.
installed_from() {
    "$python" -I - <<'EOT'
import json, urllib.parse
from importlib.metadata import PackageNotFoundError, distribution
try:
    origin = json.loads(distribution('gluon-edbatch').read_text('direct_url.json') or '{}')
except PackageNotFoundError:
    origin = {}
if 'dir_info' in origin:
    print(urllib.parse.unquote(urllib.parse.urlsplit(origin['url']).path))
EOT
}

refuse_another_checkout() {
    local other
    other="$(installed_from)"
    [[ -z "$other" || ! -d "$other" || "$other" -ef "$root" ]] ||
        die "the environment $venv has gluon_edbatch from the checkout $other, and this checkout is" \
            "$root: leave that environment (deactivate, unset EDB_VENV), let EDB_VENV name another" \
            "directory, or give it up with: $python -m pip uninstall gluon-edbatch"
}

make_venv() {
    [[ -x "$python" ]] && "$python" -m pip --version >/dev/null 2>&1 && return
    [[ "$venv" == "${VIRTUAL_ENV:-}" ]] && die "the active environment $venv has no working pip"
    [[ -e "$venv" && ! -f "$venv/pyvenv.cfg" && -n "$(ls -A "$venv")" ]] &&
        die "$venv is there and is no virtual environment"
    local base
    base="$(find_python)"
    say "making $venv with $("$base" -V)"
    "$base" -m venv --clear "$venv" >&2   # --clear: also over what an interrupted run left
}

# A CUDA build that is already there must not be overwritten with the CPU build.
drop_cpu_for_cuda() {
    local cuda
    cuda="$("$python" -m pip list --format=freeze --disable-pip-version-check |
        grep -o '^mxnet-cu[0-9]*' || true)"
    if [[ -n "$cuda" && ",$extras," == *,cpu,* ]]; then
        say "$cuda is installed: leaving out the CPU build"
        requested="$(without cpu "$requested")"
    fi
}

# Whoever runs exported models only asks for no MXNet.
has_mxnet() { "$python" -I -c 'import importlib.util as find; assert find.find_spec("mxnet")' 2>/dev/null; }

# Where NumPy before 2 has no wheels, MXNet is installed without it.
mxnet_with_later_numpy() {
    [[ ",$extras," == *,cpu,* ]] || return 0
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))' || return 0
    pip_install requests graphviz
    pip_install --no-deps mxnet==1.9.1
    requested="$(without cpu "$requested")"
}

# Quietly: what pip warns of is not about this package. Most modules of what is installed are never
# imported: Python compiles the others itself.
pip_install() {
    "$python" -I -m pip install --disable-pip-version-check -qq --no-compile "$@" >&2
}

# Not in an environment of pip's own, which would get Cython and MXNet once more. What is compiled
# comes last: another script may compile it meanwhile (EDB_WHEEL).
install_checkout() {
    say 'installing what compiles the package (setuptools, Cython)'
    pip_install 'pip>=25.1'   # which knows dependency groups
    pip_install 'setuptools>=77' wheel 'Cython>=3.1'
    CC=/bin/false pip_install --no-deps --no-build-isolation --editable "$root"
    "$python" -I -c 'import importlib.util as find; assert find.find_spec("gluon_edbatch")' ||
        die "gluon_edbatch is not to be found in $venv"
}

# What was compiled from other sources, or by another Cython, is compiled again.
compile_modules() {
    [[ -z "${EDB_WHEEL:-}" ]] || take_from_wheel
    say 'compiling the modules of gluon_edbatch (about a minute the first time)'
    (cd "$root" && "$python" -W ignore setup.py -q build_ext --inplace 2>/dev/null) |
        sed -u -n 's/^.* Cythonizing /environment:   /p' >&2 || true   # what fails runs as Python
}

take_from_wheel() {
    say 'waiting for what is compiled in a wheel'
    while [[ -z "$(ls "$EDB_WHEEL")" ]]; do sleep 1; done
    "$python" -I - "$root" "$EDB_WHEEL"/*.whl 2>/dev/null <<'EOT' || say 'there is none'
import sys, zipfile
with zipfile.ZipFile(sys.argv[2]) as wheel:
    made = [name for name in wheel.namelist() if name.endswith(('.so', '.contents'))]
    wheel.extractall(sys.argv[1], made)
EOT
}

install() {
    is_ready && return                     # another run may have held the lock meanwhile
    [[ ! -x "$python" ]] || refuse_another_checkout
    make_venv
    local requested="$extras" before=''
    [[ ! -f "$stamp" ]] || before="$(sed -n 2p "$stamp")"
    extras="$(united "$extras" "$before")"
    requested="$extras"
    local compiled=yes
    if ! is_current; then
        rm -f "$stamp"
        install_checkout
        compiled=no
    fi
    drop_cpu_for_cuda
    drop_what_needs_a_compiler
    mxnet_with_later_numpy
    say "installing what the extras $requested need"
    local name named=() chosen=''
    for name in ${requested//,/ }; do
        [[ "$groups" == *",$name,"* ]] && named+=(--group "$root/pyproject.toml:$name") || chosen+=",$name"
    done
    pip_install ${named[@]+"${named[@]}"} "gluon-edbatch[${chosen#,}]"
    [[ $compiled == yes ]] || compile_modules
    if has_mxnet; then
        "$python" -I -W ignore -c 'import gluon_edbatch' >&2 ||
            die "gluon_edbatch does not import in $venv"
        say 'compiling native operators'
        "$python" -I -m gluon_edbatch.native >/dev/null || say 'going on without native operators'
    else
        "$python" -I -c 'import gluon_edbatch_runtime' >&2 ||
            die "gluon_edbatch_runtime does not import in $venv"
    fi
    { fingerprint; echo "$extras"; } >"$stamp.part"
    mv -f "$stamp.part" "$stamp"           # last: an interrupted run is no finished one
    say "ready after $SECONDS s"
}

if ! is_ready; then
    mkdir -p "$(dirname "$venv")"
    if command -v flock >/dev/null; then
        (flock 9; install) 9<"$root"       # two scripts started at once
    else
        install
    fi
fi
echo "$python"
