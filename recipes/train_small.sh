#!/usr/bin/env bash
# How the models under data/models/ were trained: about 45 minutes each on two CPU cores; an interrupted run goes on.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

hebblm-train --corpus ptb --preset small --output-path runs/small-ptb-raw
hebblm-train --corpus wt2 --preset small --normalization lower --output-path runs/small-wt2-lower
hebblm-train --corpus wt2 --preset small --normalization raw --output-path runs/small-wt2-raw
