#!/usr/bin/env bash
# Fetches the Stanford Sentiment Treebank as binary trees in brackets.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: bash example/data/fetch_sst.sh DIR

Fetches train.txt, dev.txt and test.txt (8544, 1101 and 2210 trees) into DIR/sst. Then:

  python example/tree_sst/train.py --data DIR/sst

What is there and whole is not fetched again. The treebank's owners state no licence; its text is
from film reviews (Pang and Lee, 2005). Needs curl and sha256sum.
EOF
}

url=https://raw.githubusercontent.com/neulab/dynet-benchmark/b23f01f6f3c5386f67c9a355d9b25d72deb03ced/data/trees

# shellcheck source=example/data/fetching.sh
source "$(dirname "${BASH_SOURCE[0]}")/fetching.sh"
only_directory "$@"
fetch_files "$url" "$target/sst" <<'EOF'
e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7  train.txt
0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40  dev.txt
6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761  test.txt
EOF
echo "done: $target/sst"
