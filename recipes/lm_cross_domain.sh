#!/usr/bin/env bash
# The paper's Table "lm", right: a WikiText-2 model reads Penn Treebank's test text, overall and on new words, in lower
# and raw case, with the paper's values, and with rows for new words only when they are met. At small an hour or
# two on two cores, at smoke a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

across
evaluate "$pair" "$pair" "${across[@]}" --log-samples
runs=("$pair")
if [[ "$SCALE" != smoke ]]; then
    evaluate "$pair-raw" "$pair" "${across[@]}" --normalization raw --log-samples
    runs+=("$pair-raw")
fi
evaluate "$pair-paper" paper "${across[@]}" --log-samples
evaluate "$pair-open" "$pair" "${across[@]}" --vocabulary open --log-samples
show cross-domain "${runs[@]}" "$pair-paper" "$pair-open"
