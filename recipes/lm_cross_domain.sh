#!/usr/bin/env bash
# The paper's cross-domain table: a WikiText-2 model reads Penn Treebank's test text, overall and on unknown words.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for policy in lower raw; do
    hebblm-eval --cross-domain wt2-to-ptb --normalization "$policy" --log-samples \
        --output-path "results/wt2-to-ptb-$policy"
done
hebblm-eval --cross-domain wt2-to-ptb --hyperparameters paper --output-path results/wt2-to-ptb-paper
hebblm-eval --cross-domain wt2-to-ptb --vocabulary open --output-path results/wt2-to-ptb-open
hebblm-report results/wt2-to-ptb-{lower,raw,paper,open} --output-path results/report-cross-domain
