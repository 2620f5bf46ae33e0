#!/usr/bin/env bash
# The paper's Table "lm", left: perplexity within Penn Treebank and within WikiText-2, validation and test text, with
# the default values and with the paper's. At small an hour and a half on two cores, most of it for WikiText-2; at smoke
# a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=()
for name in $(corpora); do
    text="$(corpus "$name")"
    evaluate "intra-$name-valid" default --intra-domain "$text" --split valid
    evaluate "intra-$name" default --intra-domain "$text" "${everything[@]}"
    evaluate "intra-$name-paper" paper --intra-domain "$text"
    runs+=("intra-$name-valid" "intra-$name" "intra-$name-paper")
done
show intra-domain "${runs[@]}"
