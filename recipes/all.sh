#!/usr/bin/env bash
# Every table and figure of the paper, then the book of all results. What is finished is skipped, what was interrupted
# goes on. At small many hours on two cores; at smoke some minutes.
set -euo pipefail
here="$(dirname "${BASH_SOURCE[0]}")"

for recipe in tune readings lm_intra_domain lm_cross_domain frequency vision_permuted_mnist vision_incremental \
    vision_online vision_learning vision_pretrain_classes vision_sensitivity vision_timing vision_ablation; do
    echo "== $recipe"
    "$here/$recipe.sh"
done
# shellcheck source=recipes/common.sh
source "$here/common.sh"
study book "$RESULTS" --output-path "$RESULTS-book"
