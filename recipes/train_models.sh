#!/usr/bin/env bash
# How the models under data/models/ were trained: about 45 minutes each on two CPU cores, the first
# two together about four hours; an interrupted run goes on. At smoke half a minute, one epoch of a tiny model each.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

runs=runs
if [[ "$SCALE" == smoke ]]; then runs="$RESULTS/models"; fi
trained() { # NAME CORPUS PRESET ARGUMENTS...: at smoke an epoch of a tiny model; of options given twice the last counts
    local corpus="$2" last=()
    if [[ "$SCALE" == smoke ]]; then corpus="$(corpus pydoc)" last=(--preset tiny --epochs 1); fi
    hebblm-train --corpus "$corpus" --preset "$3" "${@:4}" "${last[@]}" --output-path "$runs/$1"
}
trained medium-ptb-raw ptb medium
trained medium-ptb-raw-finetuned ptb medium --finetune-from-model "$runs/medium-ptb-raw" --epochs 14 --lr 0.002 # this one ships
trained small-ptb-raw ptb small
trained small-wt2-lower wt2 small --normalization lower
trained small-wt2-raw wt2 small --normalization raw
