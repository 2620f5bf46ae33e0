#!/usr/bin/env bash
# The paper's Table "lm", right: a WikiText-2 model reads Penn Treebank's test text, overall and on new words, in lower
# and raw case, with rows for new words from the start or only when they are met, by a base that stays and by one that
# learns, and with the paper's values. At small half an hour on two cores, at smoke a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

across
evaluate "$pair" default "${across[@]}" --forgetting "${everything[@]}"
evaluate "$pair-paper" paper "${across[@]}"
evaluate "$pair-base-learns" default "${across[@]}" --forgetting --update-every 100 --set base.lr=10
evaluate "$pair-open" default "${across[@]}" --vocabulary open
runs=("$pair" "$pair-paper" "$pair-base-learns" "$pair-open")
if [[ "$SCALE" != smoke ]]; then
    evaluate "$pair-raw" default "${across[@]}" --normalization raw
    evaluate "$pair-raw-open" default "${across[@]}" --normalization raw --vocabulary open
    runs+=("$pair-raw" "$pair-raw-open")
fi
show cross-domain "${runs[@]}"
