#!/usr/bin/env bash
# What adaptation costs: every measurement with its reference in the same run, at the sizes of the goals;
# wants two quiet cores. Retrieval is from a million synthetic states and from a million of the small WikiText-2 model,
# whose text is read once, in parts side by side. What is there already is not measured again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mkdir -p "$out/bench"
states() { if [[ "$SCALE" != smoke ]]; then echo --checkpoint "$1"; fi; }
measure() { # NAME KIND ARGUMENTS...
    if [[ ! -f "$out/bench/$1.json" ]]; then
        # shellcheck disable=SC2046
        python -m recipes.bench "${@:2}" --threads 2 --json "$out/bench/$1.json" $(sizes "$2")
    fi
}
# shellcheck disable=SC2046
measure adapt adapt $(states small-ptb-raw)
# shellcheck disable=SC2046
measure retrieve retrieve $(states small-wt2-raw)
measure retrieve-3m retrieve --entries 3000000 # of synthetic states alone: no corpus here is as large
measure eval eval --memory-sizes 10000 100000 1000000
measure eval-wt2 eval --vocabulary 33278 --memory-sizes 2300000 --tokens 300
measure train train
measure train-paper train --preset paper --vocabulary 10000 --segments 1
study cost "$out"/bench/*.json --output-path "$out/bench/goals.md"
python -m recipes.bench plot "$out"/bench/*.json --output-path "$out/bench/cost.png"
