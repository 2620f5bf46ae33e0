#!/usr/bin/env bash
# How the network itself learns new classes, with every method over it: online in a slow and a fast regime, the curve over
# rates and steps, keys that are computed anew, norms that stay, and the paper's RMSprop with and without warm-up.
# Small is meant for two cores, an evening of them; smoke takes seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

slow=(online.steps=5 online.lr=0.01) fast=(online.steps=10 online.lr=0.03) often=20
if [[ "$SCALE" == smoke ]]; then slow=(online.steps=2) fast=(online.steps=4) often=3; fi

vision online online-fast --set "${fast[@]}"
vision online online-rebuilt --set "${slow[@]}" online.rebuilt="$often"
vision online online-frozen-norms --set "${slow[@]}" online.norms=frozen
vision incremental incremental-frozen-norms --set increment.ratios=1 increment.norms=frozen
if [[ "$SCALE" != smoke ]]; then # digits have no values of the paper
    vision online online-curve --set online.steps=1,5,10 online.lr=0.003,0.01,0.03
    for warm_up in 0 100; do
        vision online "online-paper-warm-$warm_up" --hyperparameters paper --set online.warm_up="$warm_up"
        vision incremental "incremental-paper-warm-$warm_up" --hyperparameters paper \
            --set increment.ratios=1 increment.warm_up="$warm_up"
    done
fi
