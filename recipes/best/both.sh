#!/usr/bin/env bash
# `best-of-both` on test text, beside what it mixes; across domains also at the values tuned for that pair, learning
# sooner; and over the base of the published shape. Two hours of a core, at smoke half a minute.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

both() { # NAME SCENARIO...
    run "$out/best-of-both/$1/result.json" hebblm-eval "${@:2}" --methods lstm,dynamic,best,dynamic+best,best-of-both \
        --log-samples "${smaller[@]}" --output-path "$out/best-of-both/$1"
    cp "$out/best-of-both/$1/result.json" "$kept/best/both/$1.json"
}
mkdir -p "$kept/best/both"
across
if [[ "$SCALE" == smoke ]]; then
    both pydoc --intra-domain "$(corpus pydoc)"
else
    both ptb --intra-domain ptb
    both ptb-medium --intra-domain ptb --checkpoint medium-ptb-raw
    both wt2 --intra-domain wt2
fi
both "$pair" "${across[@]}"
both "$pair-tuned" "${across[@]}" --hyperparameters tuned --update-every 10
pages
