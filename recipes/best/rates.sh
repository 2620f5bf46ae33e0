#!/usr/bin/env bash
# `best` over a base that moves, at other rates than dynamic evaluation alone is best at: which one, on Penn Treebank's
# validation text, and what it then gives on test text; and at the values tuned across domains, learning as often as by default and
# sooner. An hour on two cores, at smoke a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

measured() { # NAME ARGUMENTS...
    run "$out/$1/result.json" hebblm-eval "${@:2}" "${smaller[@]}" --output-path "$out/$1"
}
across
if [[ "$SCALE" == smoke ]]; then ptb="$(corpus pydoc)"; else ptb=ptb; fi
for lr in 0.0002 0.0004 0.0008; do
    measured "best-ptb-valid-$lr" --intra-domain "$ptb" --split valid --methods dynamic+best --set "dynamic.lr=$lr"
done
measured best-ptb-lr --intra-domain "$ptb" --methods lstm,dynamic,best,dynamic+best --set dynamic.lr=0.0004
for every in 50 10 5; do
    measured "best-across-$every" "${across[@]}" --hyperparameters tuned --update-every "$every" \
        --methods lstm,dynamic,best,dynamic+best
done
mkdir -p "$kept/best"
python -m recipes.best.rates "$out" "$kept/best/rates.json"
pages
