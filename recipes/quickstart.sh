#!/usr/bin/env bash
# Your own text from file to report: recipes/quickstart.sh FILE_OR_FOLDER; at smoke half a minute, on a text that is there.
set -euo pipefail
if [[ "${SCALE:-}" != smoke ]]; then text="$(realpath "${1:?usage: quickstart.sh FILE_OR_FOLDER}")"; fi
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

trained=()
if [[ "$SCALE" == smoke ]]; then
    text="$(corpus pydoc)" text="${text#text:}" trained=(--epochs 1 --output-path "$out/quickstart/model")
fi
hebblm-preprocess --text "$text" --tokenizer moses --min-count 2 --output-path "$out/quickstart/corpus"
hebblm-train --corpus "$out/quickstart/corpus" --preset tiny "${trained[@]}"
hebblm-eval --intra-domain "$out/quickstart/corpus" --log-samples "${smaller[@]}" --output-path "$out/quickstart/result"
hebblm-report "$out/quickstart/result"
