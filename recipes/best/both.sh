#!/usr/bin/env bash
# `best-of-both` on test text, beside what it mixes; across domains also at the values tuned for that pair, learning
# sooner; and over the base of the published shape. Two hours of a core.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

both() { # NAME SCENARIO...
    run "results/best-of-both/$1/result.json" hebblm-eval "${@:2}" --methods lstm,dynamic,best,dynamic+best,best-of-both \
        --log-samples --output-path "results/best-of-both/$1"
    cp "results/best-of-both/$1/result.json" "recipes/best/both/$1.json"
}
mkdir -p recipes/best/both
both ptb --intra-domain ptb
both wt2-to-ptb --cross-domain wt2-to-ptb
both wt2-to-ptb-tuned --cross-domain wt2-to-ptb --hyperparameters tuned --update-every 10
both ptb-medium --intra-domain ptb --checkpoint medium-ptb-raw
both wt2 --intra-domain wt2
python -m recipes.compact
python -m recipes.readme_results
