#!/usr/bin/env bash
# What a machine with a GPU has to show, in at most nine minutes: the tests that need one, what adaptation, retrieval
# (exact, and a FAISS index on the GPU), evaluation and training of the published architecture cost, and a slice of
# Penn Treebank by every method on the GPU and on the CPU, whose losses have to agree. Each step has its share of the
# time; JSON goes to $1, results/gpu unless said. What is there already is not run again. At smoke a minute on any
# machine: the same steps, small, on the CPU.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out="${1:-$out/gpu}"
mkdir -p "$out"
gpu=cuda tested=tests
text=(--intra-domain ptb --methods all --max-tokens 3000)
if [[ "$SCALE" == smoke ]]; then
    gpu=cpu tested=tests/parity/test_cuda_parity.py
    text=(--checkpoint tiny-pydoc-raw --target "$(corpus numpy)" --methods lstm,mixture,mbpa --max-tokens 200)
else
    python -c 'import torch; assert torch.cuda.is_available(), "this torch sees no CUDA device"'
fi

step() { # SECONDS FILE COMMAND...: a step that fails or takes too long is said, and the others go on
    [[ -f "$2" ]] || timeout "$1" "${@:3}" || echo "gpu_check: not finished: ${*:3}" >&2
}
measure() { # SECONDS NAME KIND ARGUMENTS...
    # shellcheck disable=SC2046
    step "$1" "$out/$2.json" python -m recipes.bench "${@:3}" --device "$gpu" --json "$out/$2.json" $(sizes "$3")
}

slice=(hebblm-eval "${text[@]}")
step 120 "$out/tests.xml" python -m pytest -m gpu -n 0 -q --junitxml "$out/tests.xml" "$tested"
step 60 "$out/slice-cuda/result.json" "${slice[@]}" --device "$gpu" --output-path "$out/slice-cuda"
step 120 "$out/slice-cpu/result.json" "${slice[@]}" --device cpu --output-path "$out/slice-cpu"
measure 60 adapt adapt --vocabulary 10000 33278 --steps 1 15
measure 40 retrieve retrieve --entries 100000 1000000 --index exact
measure 40 retrieve-ivf retrieve --entries 100000 1000000 --index IVF1024,Flat
measure 40 eval eval --tokens 1000 --streams 8 32
measure 60 train train --preset paper --vocabulary 10000 --segments 20
python -m recipes.gpu_check "$out"
