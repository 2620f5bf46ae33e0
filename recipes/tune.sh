#!/usr/bin/env bash
# Hyper-parameters of every scenario, on validation text; what ships is under data/models/tuned/.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hebblm-tune --cross-domain wt2-to-ptb --max-tokens 5000 --output-path results/tuned/wt2-to-ptb
# The evidence for the default content of the memory across domains: the same, with the training text in it too.
hebblm-tune --cross-domain wt2-to-ptb --memory-content both --max-tokens 5000 --skip-dynamic \
    --output-path results/tuned/wt2-to-ptb-both
hebblm-tune --cross-domain pydoc-to-numpy --output-path results/tuned/pydoc-to-numpy
for corpus in ptb wt2; do
    hebblm-tune --intra-domain "$corpus" --max-tokens 5000 --output-path "results/tuned/$corpus"
done
