#!/usr/bin/env bash
# How data/models/llama-wt2-small was trained, with transformers and accelerate: about 75 minutes on two CPU cores; an interrupted
# run goes on. `recipes/hf_small.sh --bf16` is faster on processors that compute in bfloat16. At smoke seconds, on a small text.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ "$SCALE" == smoke ]]; then
    python recipes/hf_small.py "$RESULTS/hf-small" --corpus "$(corpus pydoc)" --vocabulary 300 --width 32 --layers 1 \
        --context 32 --epochs 0.1 "$@"
else
    python recipes/hf_small.py runs/llama-wt2-small "$@"
fi
