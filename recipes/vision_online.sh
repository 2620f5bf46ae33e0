#!/usr/bin/env bash
# The paper's Table "cifar-online": learning from a stream of old and new classes; with the paper's three networks at
# its scale, one network otherwise.
# Small is meant for two cores and starts from the network that ships. Smoke takes seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

backbones online
