#!/usr/bin/env bash
# What adaptation gains for the Llama that ships: three texts at the default values, at values tuned on their validation
# text, with the other key, beside the AWD-LSTM of the same training text on the same words; then what a token costs
# behind large output layers, which takes 8 GB of memory. An hour or two on two quiet cores. The JSON goes to
# recipes/huggingface, the tables to its README.md. At smoke a minute, for one text.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

methods=dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
awd=small-wt2-raw first=(--max-tokens 20000) tuned_on=(--max-tokens 5000) heads=()
if [[ "$SCALE" == smoke ]]; then
    methods=cache,mixture awd=tiny-pydoc-raw first=(--max-tokens 100) tuned_on=(--max-tokens 60 --update-every 20) heads=(--scale smoke --heads)
fi
for text in $(few numpy wt2 ptb); do
    more=() target="$text"
    if [[ "$SCALE" == smoke ]]; then target="$(corpus "$text")"; fi
    if [[ "$text" == wt2 ]]; then more=(--training-entries 300000); fi
    llama=(--model llama-wt2-small --target "$target" "${more[@]}")
    here="$out/llama-$text" tuned="$out/tuned-llama-$text"
    run "$here/result.json" hebblm-eval "${llama[@]}" "${first[@]}" --output-path "$here"
    run "$tuned/tuned.json" hebblm-tune "${llama[@]}" "${tuned_on[@]}" --methods "$methods" --output-path "$tuned"
    run "$here-tuned/result.json" hebblm-eval "${llama[@]}" "${first[@]}" --config "$tuned/config.json" \
        --output-path "$here-tuned"
    run "$here-ffn-input/result.json" hebblm-eval "${llama[@]}" "${first[@]}" --key ffn-input \
        --methods lstm,knn,mixture --output-path "$here-ffn-input"
    words="$(python -S -c 'import json, sys; print(json.load(sys.stdin)["scenario"]["tokens"])' <"$here/result.json")"
    run "$out/awd-$text/result.json" hebblm-eval --checkpoint "$awd" --target "$target" --normalization raw \
        --max-tokens "$words" "${more[@]}" --output-path "$out/awd-$text"
done
if [[ ! -f "$out/heads.json" ]]; then # all but the large layers as small as it can be
    python -m recipes.bench adapt --dim 32 --vocabulary 500 --neighbors 8 --batch 20 --entries 500 --steps 15 --threads 1 \
        "${heads[@]}" --json "$out/heads.json"
fi
mkdir -p "$kept/huggingface"
python -m recipes.causal_tables "$out" "$kept/huggingface"
pages
