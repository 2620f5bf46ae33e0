#!/usr/bin/env bash
# What adaptation costs: every measurement with its reference in the same run, at the sizes of the goals; a
# quarter of an hour of two quiet cores, and the time that the small WikiText-2 model needs to read a million tokens.
# What is there already is not measured again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

measure() { # NAME ARGUMENTS...
    if [[ ! -f "results/bench/$1.json" ]]; then
        hebblm-bench "${@:2}" --threads 2 --json "results/bench/$1.json"
    fi
}
measure adapt adapt --checkpoint small-ptb-raw
measure retrieve retrieve --checkpoint small-wt2-raw
measure eval eval --memory-sizes 10000 100000 1000000
measure eval-wt2 eval --vocabulary 33278 --memory-sizes 2300000 --tokens 300
measure train train
hebblm-bench table results/bench/*.json --output-path results/bench/goals.md
hebblm-bench plot results/bench/*.json --output-path results/bench/cost.png
