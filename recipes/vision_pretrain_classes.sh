#!/usr/bin/env bash
# The paper's Table "pretrain": online with 30, 50 and 70 old classes.
# Small is meant for two cores: it pre-trains on 30 and on 70 classes; the network for 50 ships. Smoke takes seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

vision pretrain-classes pretrain-classes
