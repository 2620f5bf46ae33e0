#!/usr/bin/env bash
# When Hebb gains over MbPA on text: across domains over a base that learns, alone and as a part of best; and within Penn
# Treebank over MbPA by one and by five gradient steps (by Newton's: lm_intra_domain.sh). Values come from validation
# text. At small an hour on one core, most of it for the base that learns and for the exact form; at smoke a minute.
# TOKENS=10000 reads the beginning of the test texts alone.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

found="$RESULTS/hebb" # beside it, evaluate puts runs by the names hebb/...
limit=(--max-tokens 5000) part=(--max-tokens 2000) read=()
if [[ -n "${TOKENS:-}" ]]; then read=(--max-tokens "$TOKENS"); fi
if [[ "$SCALE" == smoke ]]; then limit=() part=() read=(); fi
tune() { # NAME ARGUMENTS...
    run "$found/tuned/$1/tuned.json" python -m recipes.hebb.tune "${@:2}" "${options[@]}" "${limit[@]}" \
        --output-path "$found/tuned/$1"
}
read -r name _ <<<"$(corpora)"
text=(--intra-domain "$(corpus "$name")")
across
descent=(mbpa.optimizer=sgd mbpa.l2_to_base=0 mbpa.weight=1) # as published, at a rate relative to the curvature
one=(--set "${descent[@]}" mbpa.steps=1) five=(--set "${descent[@]}" mbpa.steps=5)
three=(--methods lstm,mbpa,hebb)

tune "$pair-learns" "${across[@]}" --update-every 100 --set base.lr=1 --base-lr 3 10 30
evaluate "hebb/$pair-best" "$found/tuned/$pair-learns/tuned.json" "${across[@]}" "${read[@]}" --update-every 100 \
    --log-samples --plugin recipes/hebb/beside.py \
    --methods lstm,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb,ngram,best,best+mbpa,best+hebb

tune "$name-1-step" "${text[@]}" "${one[@]}" --mbpa-lr 4 8 16 32 64
tune "$name-5-steps" "${text[@]}" "${five[@]}" --mbpa-lr 4 8 16
within() { # NAME VALUES ARGUMENTS...
    evaluate "hebb/$1" "$2" "${text[@]}" "${@:3}" "${three[@]}"
}
within "$name-1-step" "$found/tuned/$name-1-step/tuned.json" "${read[@]}" "${one[@]}" --check
within "$name-5-steps" "$found/tuned/$name-5-steps/tuned.json" "${read[@]}" "${five[@]}" --check
for form in fast exact; do
    within "$name-1-step-$form" "$found/tuned/$name-1-step/tuned.json" "${part[@]}" "${one[@]}" --method "$form"
    within "$name-5-steps-$form" "$found/tuned/$name-5-steps/tuned.json" "${part[@]}" "${five[@]}" --method "$form"
done

mkdir -p "$kept/hebb"
python -m recipes.hebb.pairs "$found/$pair-best" "$kept/hebb/pairs-$pair.json"
for place in "$found"/tuned/*/; do
    cp "$place/tuned.json" "$kept/hebb/tuned-$(basename "$place").json"
done
for place in "$found"/*/result.json; do
    cp "$place" "$kept/hebb/$(basename "$(dirname "$place")").json"
done
pages
