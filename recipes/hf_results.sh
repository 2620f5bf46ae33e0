#!/usr/bin/env bash
# What adaptation gains for the Llama that ships: three texts at the default values, at values tuned on their validation
# text, with the other key, beside the AWD-LSTM of the same training text on the same words; then what a token costs
# behind large output layers, which takes 8 GB of memory. An hour or two on two quiet cores. The JSON goes to
# recipes/huggingface, the tables to docs/huggingface.md.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

methods=dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
for text in wt2 ptb numpy; do
    more=()
    if [[ "$text" == wt2 ]]; then more=(--training-entries 300000); fi
    llama=(--model llama-wt2-small --target "$text" "${more[@]}")
    out="results/llama-$text" tuned="results/tuned-llama-$text"
    run "$out/result.json" hebblm-eval "${llama[@]}" --max-tokens 20000 --output-path "$out"
    run "$tuned/tuned.json" hebblm-tune "${llama[@]}" --max-tokens 5000 --methods "$methods" --output-path "$tuned"
    run "$out-tuned/result.json" hebblm-eval "${llama[@]}" --max-tokens 20000 --config "$tuned/config.json" \
        --output-path "$out-tuned"
    run "$out-ffn-input/result.json" hebblm-eval "${llama[@]}" --max-tokens 20000 --key ffn-input \
        --methods lstm,knn,mixture --output-path "$out-ffn-input"
    words="$(python -S -c 'import json, sys; print(json.load(sys.stdin)["scenario"]["tokens"])' <"$out/result.json")"
    run "results/awd-$text/result.json" hebblm-eval --checkpoint small-wt2-raw --target "$text" --normalization raw \
        --max-tokens "$words" "${more[@]}" --output-path "results/awd-$text"
done
if [[ ! -f results/heads.json ]]; then # all but the large layers as small as it can be
    python -m recipes.bench adapt --dim 32 --vocabulary 500 --neighbors 8 --batch 20 --entries 500 --steps 15 --threads 1 \
        --json results/heads.json
fi
python -m recipes.causal_tables results
python -m recipes.readme_results
