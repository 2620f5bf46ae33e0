#!/usr/bin/env bash
# Perplexity by training count, with the paper's ranges and with finer ones; evaluates what is not there yet.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

evaluate() { # NAME ARGUMENTS...
    if [[ ! -f "results/$1/tokens.parquet" ]]; then
        hebblm-eval "${@:2}" --log-samples --output-path "results/$1"
    fi
}
evaluate ptb-test --intra-domain ptb
evaluate wt2-test --intra-domain wt2
evaluate wt2-to-ptb-lower --cross-domain wt2-to-ptb
for name in ptb-test wt2-test wt2-to-ptb-lower; do
    hebblm-report "results/$name" --output-path "results/frequency/$name"
    hebblm-report "results/$name" --edges 1,5,10,50,100,500,1000 --output-path "results/frequency/$name-fine"
done
