#!/usr/bin/env bash
# Proof that every stage of the image experiments runs at the paper's scale (its networks, 100 outputs, its phases, grids
# and values), on a handful of pictures: two old classes, sixty pictures of each to train on, one epoch a phase. The
# numbers mean nothing; half an hour on two CPU cores, minutes on a GPU. At smoke a minute: a narrow network on digits.
set -euo pipefail
if [[ "${SCALE:-}" != smoke ]]; then export SCALE=paper; fi
export SEEDS="${SEEDS:-1}"
# shellcheck source=recipes/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
RESULTS="$RESULTS-stages"

if [[ "$SCALE" == smoke ]]; then
    vision permuted-mnist permuted-mnist --hyperparameters paper
    for experiment in incremental online ablation; do
        vision "$experiment" "$experiment" --backbone resnet50-w16 --hyperparameters paper
    done
    exit
fi
few=(old_classes=2 varied=2,3,4 held_out=440 pretraining.epochs=1,1,1 pretraining.batch_size=64)
few+=(increment.samples=5 increment.epochs=1 increment.reported=1 increment.tested=100)
few+=(online.streamed=200 timing.samples=200 timing.rounds=2)
vision permuted-mnist permuted-mnist --hyperparameters paper \
    --set tasks=2 epochs=1 train_samples=1000 stored=250 test_samples=200 curve_samples=100
for experiment in incremental online sensitivity timing ablation; do
    vision "$experiment" "$experiment" --hyperparameters paper --set "${few[@]}"
done
vision pretrain-classes pretrain-classes --hyperparameters paper --set "${few[@]}"
for backbone in densenet121 mobilenetv2; do
    vision online "online-$backbone" --backbone "$backbone" --hyperparameters paper --set "${few[@]}"
done
# What the paper's values skip: the choice among several, and pre-training anew for each seed.
SEEDS="1 2" vision online online-tuned --backbone mobilenetv2 --set "${few[@]}" held_out=3 \
    pretraining.epochs=1 pretraining.lr=0.1 online.lr=1e-5,1e-4 adaptation.mbpa_optimizer=rmsprop \
    adaptation.mbpa_lambda=1e-4,1e-3 adaptation.mbpa_steps=5
