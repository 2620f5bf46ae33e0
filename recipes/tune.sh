#!/usr/bin/env bash
# The paper's Table "lm_parameter": hyper-parameters of every scenario, on the first validation tokens; those of the
# small models ship under data/models/tuned/. At small about two hours on one core, at smoke two minutes.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

limits=(--max-tokens 20000)
if [[ "$SCALE" == smoke ]]; then limits=(--max-tokens 60 --update-every 20 --skip-dynamic); fi
tune() { # NAME ARGUMENTS...; of repeated options the last counts
    run "$RESULTS/tuned/$1/tuned.json" hebblm-tune "${@:2}" "${options[@]}" "${limits[@]}" \
        --output-path "$RESULTS/tuned/$1"
}
across
tune "$pair" "${across[@]}"
# The evidence for the default content of the memory across domains: the same, with the training text in it too.
tune "$pair-both" "${across[@]}" --memory-content both --skip-dynamic
for name in $(corpora); do
    tune "$name" --intra-domain "$(corpus "$name")"
done
study book "$RESULTS/tuned" --output-path "$RESULTS/report-tuned"
chapter Tuning "$RESULTS/report-tuned/book.md"
