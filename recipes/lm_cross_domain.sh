#!/usr/bin/env bash
# The paper's Table "lm", right: a WikiText-2 model reads Penn Treebank's test text, overall and on new words, in lower
# and raw case, with rows for new words from the start or only when they are met, and with the paper's values. At small
# two or three hours on two cores, at smoke a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

across
evaluate "$pair" "$pair" "${across[@]}" --forgetting "${everything[@]}"
evaluate "$pair-paper" paper "${across[@]}"
evaluate "$pair-open" "$pair" "${across[@]}" --vocabulary open
runs=("$pair" "$pair-paper" "$pair-open")
if [[ "$SCALE" != smoke ]]; then
    evaluate "$pair-raw" "$pair" "${across[@]}" --normalization raw
    evaluate "$pair-raw-open" "$pair" "${across[@]}" --normalization raw --vocabulary open
    runs+=("$pair-raw" "$pair-raw-open")
fi
show cross-domain "${runs[@]}"
