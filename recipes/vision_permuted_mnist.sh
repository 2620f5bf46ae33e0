#!/usr/bin/env bash
# The paper's Fig. "mnist": 20 permutations of MNIST one after the other; MLP, EWC, MbPA and Hebb.
# Small is meant for two cores, hours of them; smoke takes seconds.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

vision permuted-mnist permuted-mnist
