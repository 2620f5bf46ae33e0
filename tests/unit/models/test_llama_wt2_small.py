"""The Llama-shaped model that ships is one of the hub's, and what it records of itself is so."""

from __future__ import annotations

import json
import math

import pytest
import torch

import hebblm
from hebblm.io.installation import models_path
from hebblm.models.catalog import shipped_models

FOLDER = models_path() / "llama-wt2-small"
TEXT = "The city was founded in the 12th century , and is known for the <unk> of its churches .\n"


def test_transformers_reads_it() -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    ids = tokenizer(TEXT)["input_ids"]
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer.convert_ids_to_tokens(ids).count("<unk>") == 1
    with torch.no_grad():
        loss = float(model(torch.tensor([ids]), labels=torch.tensor([ids])).loss) * (len(ids) - 1)
    record = json.loads((FOLDER / "training.json").read_text())
    assert (
        loss / math.log(2) / len(TEXT.encode()) < 1.5 * record["scores"]["valid"]["bits_per_byte"]
    )
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 20_000_000
    assert record["parameters"] == model.num_parameters()
    [told] = [shipped for shipped in shipped_models() if shipped.name == FOLDER.name]
    assert (told.corpus, told.parameters) == ("wt2", record["parameters"])
    assert told.valid_perplexity == record["scores"]["valid"]["word_perplexity"]


def test_it_goes_by_its_name() -> None:
    pytest.importorskip("transformers")
    reader = hebblm.load("llama-wt2-small", device="cpu").reader("mixture+hebb")
    first, again = reader.read(TEXT), reader.read(TEXT)
    assert again.unadapted is not None
    assert again.perplexity < again.unadapted.perplexity
    assert again.perplexity < first.perplexity
