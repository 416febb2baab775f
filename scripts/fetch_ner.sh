#!/usr/bin/env bash
# Fetches the named entities of WikiNER and Weibo, and a Chinese word list.
set -euo pipefail

usage() {
    cat <<'EOF'
usage: bash scripts/fetch_ner.sh DIR

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

die() { echo "fetch_ner: $*" >&2; exit 1; }

files() {   # SHA-256, URL of the folder, name, where to
    cat <<EOF
16b42ac4ce1a32f3a67580f20106765645ea051cc47f0ab8e2ecdbddf114ca98 $wikiner train.txt wikiner
bbbf63da9cc22d347c1c1d72ef35b5fde2fa3ece9c2c048b16dc4285e763e553 $wikiner dev.txt wikiner
4e8954c54ab33b0afc9a8abb85715c47422645cc6d1b49fdb24540f4a427e997 $weibo weiboNER_2nd_conll.train zh_ner_weibo
e72730d83aac680505280b6301c879b3ba470d29ac308979d48cdc58ee4907cc $weibo weiboNER_2nd_conll.dev zh_ner_weibo
faaf6c0ebde5348b935cfd5c89f0f22c9e0779d60667d8b5efbc647b6707d50e $weibo weiboNER_2nd_conll.test zh_ner_weibo
479cf8cc37e78bc908ae330d9153375547d4ff7f7d03a1ac4d4908d3677ff664 $jieba dict.txt.small zh_wordlist
EOF
}

has_sum() { [[ -f "$2" && "$(sha256sum <"$2" | cut -d' ' -f1)" == "$1" ]]; }

case "${1:-}" in
    -h | --help) usage; exit 0 ;;
    '') usage >&2; exit 2 ;;
    -*) die "unknown option $1 (see --help)" ;;
esac
[[ $# == 1 ]] || die 'one directory, please (see --help)'
for program in curl sha256sum; do
    command -v "$program" >/dev/null || die "needs $program"
done

while read -r sum url name folder; do
    file="$1/$folder/$name"
    has_sum "$sum" "$file" && continue
    echo "$folder/$name"
    mkdir -p "$1/$folder"
    curl --fail --silent --show-error --location --retry 3 --output "$file.part" "$url/$name"
    has_sum "$sum" "$file.part" ||
        die "$name is not the file expected: its SHA-256 differs (left as $file.part)"
    mv "$file.part" "$file"
done < <(files)
echo "done: $1/wikiner, $1/zh_ner_weibo, $1/zh_wordlist"
