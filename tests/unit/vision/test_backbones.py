from __future__ import annotations

import pytest
import torch

from hebblm.vision.backbones import MADE, _Bottleneck, build_classifier

# The three large ones: the published networks for ImageNet less what differs here, the stem's 7x7
# convolution (9,408 weights against 1,728), the norm behind it (128, DenseNet alone) and the 1000
# outputs against 100.
EXPECTED = {
    "resnet50": (25_557_032 - 7_680 - 900 * 2049, 2048),
    "densenet121": (7_978_856 - 7_680 - 128 - 900 * 1025, 1024),
    "mobilenetv2": (3_504_872 - 900 * 1281, 1280),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_published_numbers_of_parameters(name: str) -> None:
    parameters, width = EXPECTED[name]
    classifier = build_classifier(name, 100, 1)
    assert sum(parameter.numel() for parameter in classifier.parameters()) == parameters
    assert classifier.backbone.width == width
    millions = {"resnet50": "23.71", "densenet121": "7.05", "mobilenetv2": "2.35"}
    assert f"{parameters / 1e6:.2f}" == millions[name]


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        # Published for ImageNet with 1000 outputs (Keras), without the running statistics.
        ("mobilenetv2-x0.5", 1000, 1_968_680),
        # Counted by hand, convolution by convolution, each norm with two for a map, and the head.
        ("resnet50-w16", 100, 1_530_356),
        ("densenet40-k12", 100, 188_092),
    ],
)
def test_narrow_networks_have_so_many_parameters(name: str, classes: int, parameters: int) -> None:
    assert (
        sum(parameter.numel() for parameter in build_classifier(name, classes, 1).parameters())
        == parameters
    )


@pytest.mark.parametrize("name", [name for name in MADE if name not in EXPECTED])
def test_features_times_head_are_the_logits(name: str) -> None:
    classifier = build_classifier(name, 10, 1).eval()
    pictures = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        features, logits = classifier.features(pictures), classifier(pictures)
    assert features.shape == (2, classifier.backbone.width)
    torch.testing.assert_close(classifier.head().logits(features), logits)
    assert logits.std() > 0


@pytest.mark.parametrize(
    ("name", "side"), [("resnet50-w16", 4), ("densenet40-k12", 8), ("mobilenetv2-x0.5", 4)]
)
def test_keeps_the_resolution_that_small_pictures_need(name: str, side: int) -> None:
    backbone = build_classifier(name, 10, 1).eval().backbone
    with torch.no_grad():
        maps = backbone.layers(torch.zeros(1, 3, 32, 32))
    assert maps.shape == (1, backbone.width, side, side)


def test_reduced_precision_leaves_head_and_features_in_float32() -> None:
    pictures = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    plain, reduced = (build_classifier("cnn2-w16", 10, 1).eval() for _ in range(2))
    reduced.reduced = True
    with torch.no_grad():
        exact, rounded = plain.features(pictures), reduced.features(pictures)
        logits = reduced(pictures)
    assert rounded.dtype == logits.dtype == torch.float32
    assert not torch.equal(rounded, rounded.bfloat16().float()), (
        "the mean over the maps is not rounded"
    )
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded, exact, rtol=0.05, atol=0.02)
    torch.testing.assert_close(reduced.head().logits(rounded), logits)


def test_a_seed_decides() -> None:
    first, again, other = (build_classifier("densenet40-k12", 10, seed) for seed in (1, 1, 2))
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(first.output.weight, other.output.weight)


def test_residual_blocks_begin_as_their_shortcuts() -> None:
    blocks = [
        module
        for module in build_classifier("resnet50-w16", 10, 1).eval().modules()
        if isinstance(module, _Bottleneck)
    ]
    assert len(blocks) == 16
    maps = torch.randn(2, 64, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(blocks[1](maps), maps.relu())
    assert blocks[1].residual[1].weight.min() == 1
