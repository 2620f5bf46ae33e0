from __future__ import annotations

import math

import torch

from hebblm.adapt.batch import EvalBatch
from hebblm.vision.gate import FEATURES, PARTS, ImageFeatures, image_best
from hebblm.vision.reading import MIXED, Predicted, method_of, methods_of, read

from .test_reading import CLASSES, SETTINGS, VALUES, blocks, remembered

RATE = 0.5


def run(values: dict[str, float], *, observes: bool = True, seed: int = 1) -> dict[str, Predicted]:
    own = {**VALUES, "best": values}
    methods = methods_of((*MIXED, "best"), own, SETTINGS)
    return read(blocks(seed=seed), remembered(), methods, k=5, observes=observes)


def slow(observes: bool) -> tuple[list[list[float]], list[list[float]]]:
    """Mix the parts picture by picture, and take a step of AdaGrad after each block, by hand.

    Returns the probabilities of all classes for each picture, and the weights in the end.
    """
    predictors = [method_of(name, VALUES, SETTINGS).predictor for name in MIXED]
    stream = blocks()
    context = remembered().context(stream[0].head, 5, None)
    weights = [[0.0] * len(FEATURES) for _ in PARTS]
    squares = [[0.0] * len(FEATURES) for _ in PARTS]
    made = []
    for block in stream:
        context.set_head(block.head)
        batch = EvalBatch(block.hidden, context)
        features = ImageFeatures()(batch).tolist()
        parts = [predictor.log_probs(batch).double().exp().tolist() for predictor in predictors]
        total = [[0.0] * len(FEATURES) for _ in PARTS]
        for at, label in enumerate(block.labels.tolist()):
            x = features[at]
            raw = [math.exp(sum(w * v for w, v in zip(row, x, strict=True))) for row in weights]
            mixture_weights = [value / sum(raw) for value in raw]
            mixed = [
                sum(share * part[at][c] for share, part in zip(mixture_weights, parts, strict=True))
                for c in range(CLASSES)
            ]
            made.append(mixed)
            for part, share in enumerate(mixture_weights):
                change = share * parts[part][at][label] / mixed[label] - share
                for f, value in enumerate(x):
                    total[part][f] += change * value
                    squares[part][f] += (change * value) ** 2
        for part in range(len(PARTS)):
            for f in range(len(FEATURES)):
                step = RATE * total[part][f] / math.sqrt(1 + squares[part][f])
                weights[part][f] += step
        if observes:
            context.observe(batch.observation(block.labels))
    return made, weights


def test_best_is_the_plain_loop_of_gate_and_parts() -> None:
    for observes in (True, False):
        found = run({"lr": RATE}, observes=observes)["best"]
        made, weights = slow(observes)
        labels = torch.cat([block.labels for block in blocks()])
        expected = torch.tensor(made).gather(1, labels[:, None]).squeeze(1)
        torch.testing.assert_close(found.losses, -expected.log().float(), atol=2e-5, rtol=1e-4)
        assert found.classes.tolist() == torch.tensor(made).argmax(1).tolist()
        assert found.gate is not None
        learned = torch.tensor(list(found.gate.values())).view(len(PARTS), len(FEATURES))
        torch.testing.assert_close(learned, torch.tensor(weights), atol=1e-4, rtol=1e-3)
        assert bool((learned != 0).any())


def test_a_gate_without_a_rate_stays_and_equal_shares_are_the_mean() -> None:
    found = run({"lr": 0.0})
    assert found["best"].gate is None
    parts = torch.stack([found[name].losses for name in MIXED]).neg().exp()
    torch.testing.assert_close(found["best"].losses, -parts.mean(0).log())


def test_a_gate_that_learned_goes_on_from_its_weights() -> None:
    learned = run({"lr": RATE})["best"].gate
    assert learned is not None
    predictor = image_best(
        tuple(method_of(name, VALUES, SETTINGS).predictor for name in MIXED), {"lr": 0.0, **learned}
    )
    (block,) = blocks(1, seed=3)
    batch = EvalBatch(block.hidden, remembered().context(block.head, 5, None))
    x = ImageFeatures()(batch)  # (n, F)
    rows = torch.tensor(list(learned.values()), dtype=torch.float64).view(len(PARTS), -1)
    torch.testing.assert_close(predictor.log_mixture_weights(batch), (x @ rows.t()).log_softmax(1))


def test_a_learning_gate_leaves_its_parts_as_they_are() -> None:
    for observes in (True, False):
        still, learning = (run({"lr": rate}, observes=observes) for rate in (0.0, RATE))
        for name in MIXED:
            assert torch.equal(still[name].losses, learning[name].losses)
        assert not torch.equal(still["best"].losses, learning["best"].losses)


def test_features_see_no_label_and_know_new_classes() -> None:
    (block,) = blocks(1)
    context = remembered().context(block.head, 5, None)
    found = ImageFeatures()(EvalBatch(block.hidden, context))
    assert found.shape == (3, len(FEATURES))
    probs = block.head.logits(block.hidden).softmax(1)
    torch.testing.assert_close(found[:, -2], probs[:, 2:].sum(1).double())
    assert found[:, -1].tolist() == [0.0] * 3, "only old classes are remembered"
