#!/usr/bin/env bash
# What a machine with a GPU has to show, in at most nine minutes: the tests that need one, what adaptation, retrieval
# (exact, and a FAISS index on the GPU), evaluation and training of the published architecture cost, and a slice of
# Penn Treebank by every method on the GPU and on the CPU, whose losses have to agree. Each step has its share of the
# time; JSON goes to $1, results/gpu unless said. What is there already is not run again.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out="${1:-results/gpu}"
mkdir -p "$out"
python -c 'import torch; assert torch.cuda.is_available(), "this torch sees no CUDA device"'

step() { # SECONDS FILE COMMAND...: a step that fails or takes too long is said, and the others go on
    [[ -f "$2" ]] || timeout "$1" "${@:3}" || echo "gpu_check: not finished: ${*:3}" >&2
}

slice=(hebblm-eval --intra-domain ptb --methods all --max-tokens 3000)
step 120 "$out/tests.xml" python -m pytest -m gpu -n 0 -q --junitxml "$out/tests.xml"
step 60 "$out/slice-cuda/result.json" "${slice[@]}" --device cuda --output-path "$out/slice-cuda"
step 120 "$out/slice-cpu/result.json" "${slice[@]}" --device cpu --output-path "$out/slice-cpu"
step 60 "$out/adapt.json" python -m recipes.bench adapt --device cuda --vocabulary 10000 33278 --steps 1 15 --json "$out/adapt.json"
step 40 "$out/retrieve.json" python -m recipes.bench retrieve --device cuda --entries 100000 1000000 --index exact \
    --json "$out/retrieve.json"
step 40 "$out/retrieve-ivf.json" python -m recipes.bench retrieve --device cuda --entries 100000 1000000 --index IVF1024,Flat \
    --json "$out/retrieve-ivf.json"
step 40 "$out/eval.json" python -m recipes.bench eval --device cuda --tokens 1000 --streams 8 32 --json "$out/eval.json"
step 60 "$out/train.json" python -m recipes.bench train --device cuda --preset paper --vocabulary 10000 --segments 20 \
    --json "$out/train.json"
python -m recipes.gpu_check "$out"
