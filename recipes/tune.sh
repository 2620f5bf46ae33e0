#!/usr/bin/env bash
# The paper's Table "lm_parameter": hyper-parameters of every scenario, first on 20,000 validation tokens, then on the
# whole text next to what was found there; those of the small models ship under data/models/tuned/. At small about eight
# hours on one core, at smoke half a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

first=(--max-tokens 20000) whole=(--max-tokens null)
if [[ "$SCALE" == smoke ]]; then
    first=(--max-tokens 60 --update-every 20 --skip-dynamic) whole=("${first[@]}")
fi
tune() { # NAME ARGUMENTS..., and those in "limits" last: of repeated options the last counts
    run "$RESULTS/tuned/$1/tuned.json" hebblm-tune "${@:2}" "${options[@]}" "${limits[@]}" \
        --output-path "$RESULTS/tuned/$1"
}
both() { # NAME ARGUMENTS...: on the first tokens, then on all of them
    limits=("${first[@]}")
    tune "$1" "${@:2}"
    limits=("${whole[@]}" --around "$RESULTS/tuned/$1/tuned.json")
    tune "$1-whole" "${@:2}"
}
across
both "$pair" "${across[@]}"
# The evidence for the default content of the memory across domains: the same, with the training text in it too.
limits=("${first[@]}")
tune "$pair-both" "${across[@]}" --memory-content both --skip-dynamic
for name in $(corpora); do
    both "$name" --intra-domain "$(corpus "$name")"
done
study book "$RESULTS/tuned" --output-path "$RESULTS/report-tuned"
chapter Tuning "$RESULTS/report-tuned/book.md"
