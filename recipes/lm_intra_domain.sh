#!/usr/bin/env bash
# The paper's intra-domain table: Penn Treebank and WikiText-2, validation and test text.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for corpus in ptb wt2; do
    for split in valid test; do
        hebblm-eval --intra-domain "$corpus" --split "$split" --log-samples --output-path "results/$corpus-$split"
    done
    hebblm-eval --intra-domain "$corpus" --hyperparameters paper --output-path "results/$corpus-paper"
done
hebblm-report results/{ptb,wt2}-{valid,test,paper} --output-path results/report-intra-domain
