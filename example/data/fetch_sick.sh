#!/usr/bin/env bash
# Fetches SICK in the treelstm layout, and GloVe, from those who publish them.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: bash example/data/fetch_sick.sh [--glove] DIR

Fetches the SICK relatedness pairs with their dependency parses into DIR/sick. With --glove also
the word vectors (GloVe 840B, 300 numbers a word: 2 GB to fetch, 5.6 GB as text) into DIR. Then:

  python example/tree_lstm/train.py --data DIR/sick --glove DIR/glove.840B.300d.txt

What is there and whole is not fetched again; a broken-off download of GloVe is gone on with.

SICK is under CC BY-NC-SA 3.0 (its raw/readme.txt), GloVe under the Public Domain Dedication and
License. Needs curl, sha256sum and, for GloVe, unzip.
EOF
}

sick_url=https://raw.githubusercontent.com/castorini/MP-CNN-Torch/68cb72f677062113f54071fc9b8c05e7b5ff6152/data/sick
glove_url=https://nlp.stanford.edu/data/glove.840B.300d.zip

# shellcheck source=example/data/fetching.sh
source "$(dirname "${BASH_SOURCE[0]}")/fetching.sh"

# The owner publishes no checksum: unzip checks the archive's own.
fetch_glove() {
    local text="$target/glove.840B.300d.txt" archive="$target/glove.840B.300d.zip"
    [[ -f "$text" ]] && return
    mkdir -p "$target"
    if [[ ! -f "$archive" ]]; then
        if ! unzip -tqq "$archive.part" >/dev/null 2>&1; then   # not there, or broken off
            curl --fail --location --retry 3 --continue-at - --output "$archive.part" "$glove_url"
            unzip -tqq "$archive.part" || die "$archive.part is damaged: remove it and try again"
        fi
        mv "$archive.part" "$archive"
    fi
    unzip -p "$archive" glove.840B.300d.txt >"$text.part"
    mv "$text.part" "$text"
    rm "$archive"
}

glove=no
arguments=()
for argument in "$@"; do
    if [[ "$argument" == --glove ]]; then glove=yes; else arguments+=("$argument"); fi
done
only_directory ${arguments[@]+"${arguments[@]}"}
[[ $glove == no ]] || need curl unzip

fetch_files "$sick_url" "$target/sick" <<'EOF'
2ca991af7081514100e10383cd2607f925912a8eceaa8cbae309ca6583ffc2b3  dev/a.parents
81a5f0b3798fc15e8a0476a977c3709b652c098fe103343a1a81ed656da7eef7  dev/a.toks
ccde3959a9f675db299c570fef622da0d349b1702a9ef62295cc94b9d9cefc61  dev/b.parents
f8a2e86fea60c23b23de390e877aac33cd1b93ed7f8e1796078859743e981ad9  dev/b.toks
72cb19ad1aa5fc4c9895604fa265a53b9fb69f72a7fefed1c1235267cfa11dcd  dev/id.txt
0f265cdd3067712009360563c417b47b53dddbf5ac057445a9f18084dfd1b42f  dev/sim.txt
d1c33c139aaa9e5511e8fc68133a5fa88669a993f8819cbec5d83c068760c822  raw/readme.txt
0f5b422b11cf0be7f63a9a86e4f55800c29c45f212042a49e885c76a5c4f11bb  test/a.parents
3c769f53f5dc63bce9397e8ee620d20f05ffa71ea8ac5f220f65d4d6e8bb5f28  test/a.toks
d832dc70cb9d985be56dd17df9be895ed7f22c31671fb873f08ca19afbf48735  test/b.parents
e33957756776134c964c77c5d3fcf0c8c29b6220bc21375740182b76972ad4f3  test/b.toks
c2bee2cc1915c83676aa86ef5cc1eda606b4532445854bb802ec1a96b28786c4  test/id.txt
5de8340ee6b0d75a6e8238ba7da0b32f38931dd38aa8ae0a3bc8d3b3444589c1  test/sim.txt
dc72e316e442ee67a382dde5fb8935326ef6e055658af9093e2a8de1f7feca00  train/a.parents
b2b441a0c22188f2f5634b14dacd2330c16eff822ff1c6d03edda0a0eb73df68  train/a.toks
4d7d28291081e92539fcc5143bb305565d38c901903814fc989b8a717992cd05  train/b.parents
81d0bda6ee2f79bbdde2f149288784dfa6210d27d4a97f9c8c2e10583e523cd2  train/b.toks
d481958e387884984fd40305ad0a265b1d6c53aeff4cbb2502b7141eb821d5cd  train/id.txt
0738b8a17effeaf36a9a4f82d0530f7ae0e549196db341d35bb6e86423977c6e  train/sim.txt
EOF
[[ $glove == no ]] || fetch_glove
echo "done: $target"
