#!/usr/bin/env bash
# `best` over a base that moves, at other rates than dynamic evaluation alone is best at: which one, on Penn Treebank's
# validation text, and what it then gives on test text; and at the values tuned across domains, learning as often as by default and
# sooner. An hour on two cores.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

for lr in 0.0002 0.0004 0.0008; do
    run "results/best-ptb-valid-$lr/result.json" hebblm-eval --intra-domain ptb --split valid --methods dynamic+best \
        --set "dynamic.lr=$lr" --output-path "results/best-ptb-valid-$lr"
done
run results/best-ptb-lr/result.json hebblm-eval --intra-domain ptb --methods lstm,dynamic,best,dynamic+best \
    --set dynamic.lr=0.0004 --output-path results/best-ptb-lr
for every in 50 10 5; do
    run "results/best-across-$every/result.json" hebblm-eval --cross-domain wt2-to-ptb --hyperparameters tuned \
        --update-every "$every" --methods lstm,dynamic,best,dynamic+best --output-path "results/best-across-$every"
done
python -m recipes.best.rates results
python -m recipes.compact recipes/best/rates.json
