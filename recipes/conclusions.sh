#!/usr/bin/env bash
# What the conclusions hang on: the constant of the closeness that the paper does not give, how soon what was read
# is learned, the published setting of dynamic evaluation, and which words are new. Half an hour on two cores.
# The losses go to recipes/conclusions.json, the tables to recipes/conclusions.md. At smoke two minutes, for one of each kind.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

evaluated() { # NAME ARGUMENTS...
    run "$out/conclusions/$1/result.json" hebblm-eval "${@:2}" --log-samples "${smaller[@]}" --output-path "$out/conclusions/$1"
}

across
if [[ "$SCALE" == smoke ]]; then
    ptb="$(corpus pydoc)" wt2="$ptb" words="${ptb#text:}" new="$(corpus numpy)" made="$out/made" preset=tiny
    trained=(--epochs 1) medium=()
else
    ptb=ptb wt2=wt2 words="${HEBBLM_DATA:-data}/wikitext-2" new=ptb made=runs preset=small
    trained=() medium=(--checkpoint medium-ptb-raw)
fi
stream=(--intra-domain "$ptb" --max-tokens 20000)
for eps in $(few 0.001 0.1 1); do # the paper's values
    evaluated "eps-$eps" "${stream[@]}" --update-every 100 --hyperparameters paper --set "mbpa.eps=$eps" --methods lstm,mbpa,hebb
done
others=lstm,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
for every in $(few 50 100 10 1); do
    evaluated "cache-every-$every" "${stream[@]}" --update-every "$every" --methods lstm,cache
    evaluated "every-$every" "${stream[@]}" --update-every "$every" --methods "$others"
done
for every in $(few 50 100 10); do
    evaluated "dynamic-every-$every" "${stream[@]}" --update-every "$every" --methods lstm,dynamic
done
evaluated dynamic-published "${stream[@]}" --update-every 5 --methods lstm,dynamic --set dynamic.segment=5 \
    dynamic.lr=5e-5 dynamic.decay=0.002 dynamic.epsilon=2e-5
nine=lstm,dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
# all at the default interval and values, and dynamic evaluation at the best values of recipes/defaults/dynamic.json, too
evaluated interval-ptb "${stream[@]}" --methods "$nine"
evaluated interval-wt2 --intra-domain "$wt2" --max-tokens 60000 --methods "$nine"
evaluated interval-wt2-to-ptb "${across[@]}" --max-tokens 20000 --methods "$nine"
for values in $(few 50/16e-4/1e-4/0.3 20/8e-4/1e-4/0.1 5/1e-3/1e-3/0.02); do
    IFS=/ read -r segment lr epsilon decay <<<"$values"
    evaluated "dynamic-tuned-$segment" "${stream[@]}" --update-every "$segment" --methods "$nine" --set \
        "dynamic.segment=$segment" "dynamic.lr=$lr" "dynamic.epsilon=$epsilon" "dynamic.decay=$decay"
done
if [[ "$SCALE" != smoke ]]; then
    ln -sfn ../small/wt2-to-ptb "$out/conclusions/new-words" # the run of lm_cross_domain.sh
fi
# the base's rates are for steps of 100 tokens
crossing=(--max-tokens 20000 --update-every 100 --methods lstm,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb)
evaluated base-stays "${across[@]}" "${crossing[@]}"
evaluated base-sgd "${across[@]}" "${crossing[@]}" --set base.lr=10
evaluated base-rmsprop "${across[@]}" "${crossing[@]}" --set base.optimizer=rmsprop base.lr=1e-4
# the same with new words in the dictionary from the first: their rows are there in training, and pushed down
hebblm-preprocess --text "$words" --normalization lower --joined-dictionary "$new" --output-path "$made/wt2-ptb"
hebblm-train --corpus "$made/wt2-ptb" --preset "$preset" "${trained[@]}" --output-path "$made/wt2-ptb-lower"
evaluated base-joint --checkpoint "$made/wt2-ptb-lower" --target "$new" --normalization lower "${crossing[@]}"
for seed in $(few 1111 2 3); do # of the base's weights, dropout and order of training
    hebblm-train --corpus "$ptb" --preset tiny "${trained[@]}" --seed "$seed" --output-path "$made/tiny-ptb-seed$seed"
    evaluated "seed-$seed" "${stream[@]}" --checkpoint "$made/tiny-ptb-seed$seed" --methods "$nine"
done
evaluated base-medium --intra-domain "$ptb" "${medium[@]}" --methods "$nine,best,dynamic+best"
mkdir -p "$kept/strength"
cp "$out/conclusions/base-medium/result.json" "$kept/strength/intra-ptb-medium.json"
over_all=("${across[@]}" --methods lstm,mbpa,hebb --set hebb.classes=all)
evaluated classes-all "${over_all[@]}"
evaluated classes-all-tuned "${over_all[@]}" hebb.eta=1 hebb.beta=0.9 # the best of recipes/best/forms-wt2-to-ptb.json
python -m recipes.conclusions "$out/conclusions" "$kept/conclusions.json"
pages
