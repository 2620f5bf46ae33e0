#!/usr/bin/env bash
# What the paper leaves open, one reading at a time on the first validation tokens: content of the memory, scaling of
# the closeness and its eps, the gate of Hebb, what n_i counts, the form of Mixture. The other values stay those that
# were tuned for the default reading. At small an hour or two on two cores, at smoke some minutes.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

methods=lstm,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
for name in $(corpora); do
    text="$(corpus "$name")"
    reading() { # NAME ARGUMENTS...; of repeated options the last counts
        evaluate "readings/$name/$1" "$name" --intra-domain "$text" --split valid --methods "$methods" \
            --max-tokens 10000 "${@:2}"
    }
    reading default
    reading memory-train --memory-content train
    reading memory-test --memory-content test
    reading closeness-sum --set mbpa.closeness=sum hebb.closeness=sum
    reading closeness-max --set mbpa.closeness=max hebb.closeness=max
    reading eps-0.1 --set mbpa.eps=0.1
    reading eps-1e-5 --set mbpa.eps=1e-5
    reading gate-literal --set hebb.gate=literal
    reading counts-memory --set hebb.counts=memory
    reading mixture-logit-sum --set mixture.form=logit-sum
done
hebblm-report book "$RESULTS/readings" --output-path "$RESULTS/report-readings"
sed -n '/^### .* side by side$/,/^### .*: /p' "$RESULTS/report-readings/book.md"
