#!/usr/bin/env bash
# Fetches the named entities of WikiNER and Weibo, and a Chinese word list.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: bash example/data/fetch_ner.sh DIR

Fetches WikiNER (10000 and 1696 sentences; CC BY 3.0) into DIR/wikiner, Weibo NER (1350, 270 and
270 sentences; annotations CC BY-SA 3.0, messages under Weibo's terms) into DIR/zh_ner_weibo, and
jieba's small word list (MIT) into DIR/zh_wordlist. Then:

  python example/tagger/train.py --data DIR/wikiner
  python example/lattice/train.py --data DIR/zh_ner_weibo --words DIR/zh_wordlist/dict.txt.small

What is there and whole is not fetched again. Needs curl and sha256sum.
EOF
}

github=https://raw.githubusercontent.com
wikiner=$github/neubig/nn4nlp-code/970d91a51664b3d91a9822b61cd76abea20218cb/data/tags
weibo=$github/hltcoe/golden-horse/7a73c08e45ed94312af4ef2d97cc35a47d029e99/data
jieba=$github/fxsjy/jieba/67fa2e36e72f69d9134b8a1037b83fbb070b9775/extra_dict

# shellcheck source=example/data/fetching.sh
source "$(dirname "${BASH_SOURCE[0]}")/fetching.sh"
only_directory "$@"
fetch_files "$wikiner" "$target/wikiner" <<'EOF'
16b42ac4ce1a32f3a67580f20106765645ea051cc47f0ab8e2ecdbddf114ca98  train.txt
bbbf63da9cc22d347c1c1d72ef35b5fde2fa3ece9c2c048b16dc4285e763e553  dev.txt
EOF
fetch_files "$weibo" "$target/zh_ner_weibo" <<'EOF'
4e8954c54ab33b0afc9a8abb85715c47422645cc6d1b49fdb24540f4a427e997  weiboNER_2nd_conll.train
e72730d83aac680505280b6301c879b3ba470d29ac308979d48cdc58ee4907cc  weiboNER_2nd_conll.dev
faaf6c0ebde5348b935cfd5c89f0f22c9e0779d60667d8b5efbc647b6707d50e  weiboNER_2nd_conll.test
EOF
fetch_files "$jieba" "$target/zh_wordlist" <<'EOF'
479cf8cc37e78bc908ae330d9153375547d4ff7f7d03a1ac4d4908d3677ff664  dict.txt.small
EOF
echo "done: $target/wikiner, $target/zh_ner_weibo, $target/zh_wordlist"
