#!/usr/bin/env bash
# The paper's Table "frequency": perplexity by training count, with its ranges and with finer ones, from the runs of
# lm_intra_domain.sh and lm_cross_domain.sh; evaluates what is not there yet. Seconds where they are.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=()
for name in $(corpora); do
    evaluate "intra-$name" default --intra-domain "$(corpus "$name")" "${everything[@]}"
    runs+=("intra-$name")
done
across
evaluate "$pair" default "${across[@]}" --forgetting "${everything[@]}"
for run in "${runs[@]}" "$pair"; do
    for seed in ${SEEDS:-1111}; do
        place="$(folder "$run" "$seed")"
        hebblm-report "$place" --edges 1,5,10,50,100,500,1000 --output-path "$RESULTS/report-frequency-fine/${place##*/}"
        hebblm-report "$place" --output-path "$RESULTS/report-frequency/${place##*/}"
    done
done
