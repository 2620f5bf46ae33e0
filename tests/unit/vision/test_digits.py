from __future__ import annotations

import torch

from hebblm.vision.data import load_digits


def test_real_pictures_without_a_download() -> None:
    found = load_digits()
    assert len(found.train) + len(found.test) == 1797
    assert found.train.pixels.shape == (1438, 1, 8, 8)
    assert set(found.test.labels.tolist()) == set(range(10))
    assert found.train.labels[:10].tolist() == list(range(10))
    rows = found.train.flat(torch.arange(len(found.train)))
    assert float(rows.max()) == 1
    assert float(rows.min()) == 0
    assert found.sha256 == load_digits().sha256
