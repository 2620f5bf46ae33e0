from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest
import torch

from hebblm import download
from hebblm.errors import UserError
from hebblm.vision.data import CIFAR100, MNIST, HubDataset, load_hub


def rows(wanted: HubDataset, count: int, **changes: Any) -> datasets.Dataset:
    """Return pictures whose pixels count on, as the hub's files hold them: encoded and with rows before columns."""
    planes, height, width = wanted.shape
    pictures = (np.arange(count * height * width * planes) % 251).astype(np.uint8)
    arrays = list(pictures.reshape(count, height, width, planes))
    columns = {
        wanted.picture: changes.get("pictures", [array.squeeze() for array in arrays]),
        wanted.label: changes.get("labels", list(range(count))),
    }
    columns = {name: values for name, values in columns.items() if name != changes.get("without")}
    features = {wanted.picture: datasets.Image(), wanted.label: datasets.Value("int64")}
    own = datasets.Features({name: features[name] for name in columns})
    return datasets.Dataset.from_dict(columns, features=own)


def serve(monkeypatch: pytest.MonkeyPatch, wanted: HubDataset, parts: dict[str, Any]) -> None:
    def load(identifier: str, config: None) -> datasets.DatasetDict:
        assert identifier == wanted.identifier
        return datasets.DatasetDict(parts)

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(download, "_reachable", lambda url: True)


@pytest.mark.parametrize("wanted", [MNIST, CIFAR100])
def test_pictures_come_planes_first(wanted: HubDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, wanted, {"train": rows(wanted, 3), "test": rows(wanted, 2)})
    found = load_hub(wanted)
    assert found.name == wanted.name
    assert found.train.pixels.shape == (3, *wanted.shape)
    assert found.train.labels.tolist() == [0, 1, 2]
    assert len(found.test) == 2
    planes = wanted.shape[0]
    expected = torch.arange(planes) + planes  # of the second picture element of the first row
    assert torch.equal(found.train.pixels[0, :, 0, 1], expected.byte())
    assert len(found.sha256) == 2
    assert len(set(found.sha256.values())) == 2


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"train": rows(MNIST, 2)}, "has no part 'test'"),
        ({"train": rows(MNIST, 2, without="label"), "test": rows(MNIST, 2)}, "has no column 'label'"),
        ({"train": rows(MNIST, 2), "test": rows(MNIST, 1, labels=[10])}, "test has label 10 at 0"),
        (
            {"train": rows(MNIST, 1, pictures=[np.zeros((27, 28), np.uint8)]), "test": rows(MNIST, 2)},
            "train: picture 0 is not of 28x28 pixels",
        ),
    ],
)
def test_refuses(parts: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, MNIST, parts)
    with pytest.raises(UserError, match=told):
        load_hub(MNIST)


def test_says_that_the_hub_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(identifier: str, config: None) -> None:
        raise ConnectionError("no route\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(download, "_reachable", lambda url: True)
    with pytest.raises(UserError, match=r"cannot load ylecun/mnist from the hub \(no route\); check the network"):
        load_hub(MNIST)
