#!/usr/bin/env bash
# What the conclusions hang on: the constant of the closeness that the paper does not give, how soon what was read
# is learned, the published setting of dynamic evaluation, and which words are new. Half an hour on two cores.
# The losses go to recipes/conclusions.json, the tables to docs/conclusions.md.
set -euo pipefail
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

evaluated() { # NAME ARGUMENTS...
    run "results/conclusions/$1/result.json" hebblm-eval "${@:2}" --log-samples --output-path "results/conclusions/$1"
}

stream=(--intra-domain ptb --max-tokens 20000)
for eps in 0.001 0.1 1; do # the paper's values
    evaluated "eps-$eps" "${stream[@]}" --update-every 100 --hyperparameters paper --set "mbpa.eps=$eps" --methods lstm,mbpa,hebb
done
others=lstm,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
for every in 100 50 10 1; do
    evaluated "cache-every-$every" "${stream[@]}" --update-every "$every" --methods lstm,cache
    evaluated "every-$every" "${stream[@]}" --update-every "$every" --methods "$others"
done
for every in 100 50 10; do
    evaluated "dynamic-every-$every" "${stream[@]}" --update-every "$every" --methods lstm,dynamic
done
evaluated dynamic-published "${stream[@]}" --update-every 5 --methods lstm,dynamic --set dynamic.segment=5 \
    dynamic.lr=5e-5 dynamic.decay=0.002 dynamic.epsilon=2e-5
nine=lstm,dynamic,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb
# all at the default interval and values, and dynamic evaluation at the best values of recipes/defaults/dynamic.json, too
evaluated interval-ptb "${stream[@]}" --methods "$nine"
evaluated interval-wt2 --intra-domain wt2 --max-tokens 60000 --methods "$nine"
evaluated interval-wt2-to-ptb --cross-domain wt2-to-ptb --max-tokens 20000 --methods "$nine"
for values in 50/16e-4/1e-4/0.3 20/8e-4/1e-4/0.1 5/1e-3/1e-3/0.02; do
    IFS=/ read -r segment lr epsilon decay <<<"$values"
    evaluated "dynamic-tuned-$segment" "${stream[@]}" --update-every "$segment" --methods "$nine" --set \
        "dynamic.segment=$segment" "dynamic.lr=$lr" "dynamic.epsilon=$epsilon" "dynamic.decay=$decay"
done
ln -sfn ../small/wt2-to-ptb results/conclusions/new-words # the run of lm_cross_domain.sh
# the base's rates are for steps of 100 tokens
crossing=(--cross-domain wt2-to-ptb --max-tokens 20000 --update-every 100 --methods lstm,cache,knn,mixture,mbpa,hebb,mixture+mbpa,mixture+hebb)
evaluated base-stays "${crossing[@]}"
evaluated base-sgd "${crossing[@]}" --set base.lr=10
evaluated base-rmsprop "${crossing[@]}" --set base.optimizer=rmsprop base.lr=1e-4
# the same with new words in the dictionary from the first: their rows are there in training, and pushed down
joint=runs/wt2-ptb-lower
hebblm-preprocess --text "${HEBBLM_DATA:-data}/wikitext-2" --normalization lower --joined-dictionary ptb \
    --output-path corpora/wt2-ptb
hebblm-train --corpus corpora/wt2-ptb --preset small --output-path "$joint"
evaluated base-joint --checkpoint "$joint" --target ptb --normalization lower "${crossing[@]:2}"
for seed in 1111 2 3; do # of the base's weights, dropout and order of training
    hebblm-train --corpus ptb --preset tiny --seed "$seed" --output-path "runs/tiny-ptb-seed$seed"
    evaluated "seed-$seed" "${stream[@]}" --checkpoint "runs/tiny-ptb-seed$seed" \
        --methods "$nine"
done
evaluated base-medium --intra-domain ptb --checkpoint medium-ptb-raw --methods "$nine,best,dynamic+best"
mkdir -p recipes/strength
cp results/conclusions/base-medium/result.json recipes/strength/intra-ptb-medium.json
over_all=(--cross-domain wt2-to-ptb --methods lstm,mbpa,hebb --set hebb.classes=all)
evaluated classes-all "${over_all[@]}"
evaluated classes-all-tuned "${over_all[@]}" hebb.eta=1 hebb.beta=0.9 # the best of recipes/best/forms-wt2-to-ptb.json
python -m recipes.conclusions results/conclusions
python -m recipes.compact
python -m recipes.readme_results
