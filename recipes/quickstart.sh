#!/usr/bin/env bash
# Your own text from file to report: recipes/quickstart.sh FILE_OR_FOLDER
set -euo pipefail
text="$(realpath "${1:?usage: quickstart.sh FILE_OR_FOLDER}")"
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hebblm-preprocess --text "$text" --tokenizer moses --min-count 2 --output-path results/quickstart/corpus
hebblm-train --corpus results/quickstart/corpus --preset tiny
hebblm-eval --intra-domain results/quickstart/corpus --log-samples --output-path results/quickstart/result
hebblm-report results/quickstart/result
