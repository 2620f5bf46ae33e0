#!/usr/bin/env bash
# The paper's Table "ablation": simplified versions of Hebb, online.
# Small is meant for two cores and starts from the network that ships. Smoke takes seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

vision ablation ablation
