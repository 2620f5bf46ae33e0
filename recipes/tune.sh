#!/usr/bin/env bash
# Hyper-parameters of every scenario, on validation text; what ships is under data/models/tuned/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hebblm-tune --cross-domain wt2-to-ptb --output-path results/tuned/wt2-to-ptb
hebblm-tune --cross-domain pydoc-to-numpy --output-path results/tuned/pydoc-to-numpy
for corpus in ptb wt2; do
    hebblm-tune --intra-domain "$corpus" --output-path "results/tuned/$corpus"
done
