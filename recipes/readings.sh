#!/usr/bin/env bash
# What the paper leaves open, one reading at a time on the first validation tokens: content of the memory, scaling of
# the closeness and its eps, the gate of Hebb, what n_i counts, the form of Mixture. The other values stay the
# default ones; then each method tries values of its own under each. At small half an hour on one core, at smoke seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

methods=mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
for name in $(corpora); do
    place="$RESULTS/readings/$name"
    run "$place/readings.json" python -m recipes.study readings --intra-domain "$(corpus "$name")" --split valid \
        --methods "$methods" --max-tokens 5000 "${options[@]}" --hyperparameters default \
        --output-path "$place"
done
study book "$RESULTS/readings" --output-path "$RESULTS/report-readings"
chapter 'What the paper leaves open' "$RESULTS/report-readings/book.md"
