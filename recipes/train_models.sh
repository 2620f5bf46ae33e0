#!/usr/bin/env bash
# How the models under data/models/ were trained: about 45 minutes each on two CPU cores, the first
# two together about four hours; an interrupted run goes on.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hebblm-train --corpus ptb --preset medium --output-path runs/medium-ptb-raw
hebblm-train --corpus ptb --preset medium --finetune-from-model runs/medium-ptb-raw --epochs 14 --lr 0.002 \
    --output-path runs/medium-ptb-raw-finetuned # this one ships
hebblm-train --corpus ptb --preset small --output-path runs/small-ptb-raw
hebblm-train --corpus wt2 --preset small --normalization lower --output-path runs/small-wt2-lower
hebblm-train --corpus wt2 --preset small --normalization raw --output-path runs/small-wt2-raw
