#!/usr/bin/env bash
# What adaptation costs: every measurement with its reference and its floor in the same run, at the sizes of the goals;
# wants two quiet cores. Retrieval is from a million synthetic states and from a million of the small WikiText-2 model,
# whose text is read once, in parts side by side. What is there already is not measured again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

measure() { # NAME COMMAND...
    if [[ ! -f "results/bench/$1.json" ]]; then
        "${@:2}" --threads 2 --json "results/bench/$1.json"
    fi
}
measure adapt study bench adapt --checkpoint small-ptb-raw
measure retrieve study bench retrieve --checkpoint small-wt2-raw
measure retrieve-3m study bench retrieve --entries 3000000 # of synthetic states alone: no corpus here is as large
measure eval study bench eval --memory-sizes 10000 100000 1000000
measure eval-wt2 study bench eval --vocabulary 33278 --memory-sizes 2300000 --tokens 300
measure train python -m recipes.bench train
measure train-paper python -m recipes.bench train --preset paper --vocabulary 10000 --segments 1
study cost results/bench/*.json --output-path results/bench/goals.md
python -m recipes.bench plot results/bench/*.json --output-path results/bench/cost.png
