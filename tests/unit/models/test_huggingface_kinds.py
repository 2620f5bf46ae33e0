"""Models of other kinds: each is refused in one line that names it, whether it is open or in a
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import hebblm
from hebblm.cli.eval import main as evaluate
from hebblm.cli.memory import main as remember
from hebblm.cli.read import main as read
from hebblm.errors import UserError

from .architectures import SHAPE, TEXT, changed, random_model, saved, tokenizer

transformers = pytest.importorskip("transformers")
BERT = {"vocab_size": 70, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
"intermediate_size": 48,
        "max_position_embeddings": 64}  # fmt: skip
BART = {"vocab_size": 70, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
"encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
PICTURES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
"num_attention_heads": 4,
            "image_size": 32, "patch_size": 16}  # fmt: skip
RATES, FILLS = (
    "classifies texts or rates them; hebblm reads causal",
    "fills in masked tokens; hebblm reads causal",
)
PAIRED, BLIND = (
    "is an encoder-decoder; hebblm reads causal language models",
    "has no embeddings of tokens",
)
UNKNOWN = "is not a causal language model for transformers"
KINDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "T5ForConditionalGeneration": ("T5", {"vocab_size": 70, "d_model": 32, "d_kv": 8, "d_ff": 48,
    "num_layers": 1,
                                          "num_heads": 4}, PAIRED, PAIRED),
    "BartForConditionalGeneration": ("Bart", BART, PAIRED, PAIRED),
    "BertForMaskedLM": ("Bert", BERT, FILLS, FILLS),
    "LlamaForSequenceClassification": ("Llama", {**SHAPE, "num_labels": 1, "pad_token_id": 0},
    RATES, RATES),
    "LlamaModel": ("Llama", SHAPE, "has no output layer", r"lacks 1 weights \(lm_head.weight\) of "
        r"LlamaForCausalLM"),
    "ElectraForPreTraining": ("Electra", {**BERT, "embedding_size": 32}, "has no output layer",
                              "lacks 5 weights .* of ElectraForCausalLM"),
    "BertForPreTraining": ("Bert", BERT, "gives no logits for a text of 12 tokens",
    "it is not causal"),
    "ViTForImageClassification": ("ViT", PICTURES, BLIND, UNKNOWN),
    "CLIPModel": ("CLIP", {"text_config": BERT, "vision_config": PICTURES}, BLIND, UNKNOWN),
}  # fmt: skip


def of_kind(kind: str) -> Any:
    family, shape, *_ = KINDS[kind]
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, f"{family}Config")(**shape)).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_model_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    *_, opened, stored = KINDS[kind]
    model = of_kind(kind)
    with pytest.raises(UserError, match=f"^{kind} {opened}"):
        hebblm.load((model, tokenizer()))
    folder = saved(model, tmp_path / "model")
    with pytest.raises(UserError, match=stored) as error:
        hebblm.load(folder, device="cpu")
    # which opens as what it can be read as
    assert kind in str(error.value) or kind == "BertForPreTraining"
    assert "\n" not in str(error.value)


def test_the_decoder_of_an_encoder_decoder_is_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    decoder = transformers.BartForCausalLM(transformers.BartConfig(**BART)).eval()
    expected = hebblm.load((decoder, tokenizer())).reader("mixture").read(TEXT).nll
    found = hebblm.load(saved(decoder, tmp_path), device="cpu").reader("mixture").read(TEXT).nll
    torch.testing.assert_close(found, expected)


def test_commands_end_with_one_line_and_status_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(saved(of_kind("BartForConditionalGeneration"), tmp_path / "model"))
    (tmp_path / "a.txt").write_text(TEXT)
    text, out = str(tmp_path / "a.txt"), tmp_path / "out"
    for command, arguments in (
        (read, [folder, text, "--save", str(out)]),
        (evaluate, ["--model", folder, "--text", text, "--output-path", str(out)]),
        (remember, ["build", "--model", folder, "--text", text, "--output-path", str(out)]),
    ):
        capfd.readouterr()
        assert command(arguments) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert f"error: cannot load {folder}: BartForConditionalGeneration {PAIRED}" in line
        assert not out.exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "NoneType is not a tokenizer of transformers"),
        ("a name", "str is not a tokenizer of transformers"),
        (
            type("Processor", (), {"tokenizer": tokenizer()})(),
            "Processor is not a tokenizer .*; give its .tokenizer",
        ),
    ],
)
def test_what_is_no_tokenizer_is_refused(given: Any, told: str) -> None:
    with pytest.raises(UserError, match=told):
        hebblm.load((random_model("Llama"), given))
    if hasattr(given, "tokenizer"):
        assert hebblm.load((random_model("Llama"), given.tokenizer)).reader("mixture").read(TEXT)


def scaled(scale: float) -> Any:
    model = random_model("Llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(scale)
    return model


@pytest.mark.parametrize(("scale", "what"), [(1e4, "logits"), (1e7, "weights")])
def test_what_overflows_in_float16_is_refused_and_read_in_float32(
    scale: float, what: str, tmp_path: Path
) -> None:
    folder = saved(scaled(scale), tmp_path)
    told = f"the {what} of LlamaForCausalLM are not finite in float16; load it with dtype=float32$"
    with pytest.raises(UserError, match=told):
        hebblm.load(folder, device="cpu", dtype="float16")
    assert hebblm.load(folder, device="cpu", dtype="float32").reader("mixture").read(TEXT)


def test_broken_weights_are_told_from_those_that_overflow() -> None:
    broken, empty = random_model("Llama"), scaled(0)
    broken.lm_head.weight.data[3, 3] = torch.nan
    for model, told in (
        (broken, "weights .* are not finite in float32"),
        (empty, "logits .* are all zero in float32"),
    ):
        with pytest.raises(UserError, match=f"the {told}; download the model again"):
            hebblm.load((model, tokenizer()))


class Longer(transformers.LlamaForCausalLM):  # type: ignore[misc]
    """Reads a token of its own before every text."""

    def forward(self, input_ids: Any, **options: Any) -> Any:
        return super().forward(torch.cat([input_ids[:, :1], input_ids], 1), **options)


class Failing(transformers.LlamaForCausalLM):  # type: ignore[misc]
    """Needs more than the tokens of a text."""

    def forward(self, input_ids: Any, pictures: Any = None, **options: Any) -> Any:
        return super().forward(input_ids[: pictures.shape[0]], **options)


def test_a_model_that_cannot_be_probed_is_refused_by_its_name() -> None:
    config = random_model("Llama").config
    with pytest.raises(
        UserError, match=r"^Longer gives logits of shape \(1, 13, 70\) for a text of 12 tokens"
    ):
        hebblm.load((Longer(config), tokenizer()))
    with pytest.raises(
        UserError, match=r"^Failing cannot read a text that is given as token ids alone \(Attrib"
    ):
        hebblm.load((Failing(config), tokenizer()))


def test_a_key_layer_without_a_state_for_each_token_is_refused() -> None:
    model = random_model("Llama")
    # more than it has layers
    model.spare = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(9)])
    with pytest.raises(
        UserError, match="layer of key '8' in LlamaForCausalLM has no state for each token"
    ):
        hebblm.load((model, tokenizer()), key=8)


@pytest.mark.parametrize(
    ("file", "values", "told"),
    [
        ("config.json", {"dtype": "float99"}, r"an option, is wrong \(AttributeError: .*float99"),
        (
            "config.json",
            {"num_attention_heads": 0},
            r"a value in its files.* is wrong \(ZeroDivisionError",
        ),
        (
            "config.json",
            {"architectures": [3], "hidden_size": "x"},
            "field 'hidden_size': .* got str",
        ),
        (
            "config.json",
            {"model_type": "own", "auto_map": {"AutoConfig": "x.X"}},
            "needs code of its own, which hebb",
        ),
        ("tokenizer_config.json", {"added_tokens_decoder": 5}, "the tokenizer of .*AttributeError"),
    ],
)
def test_bad_values_in_a_folder_get_one_line(
    file: str, values: dict[str, Any], told: str, tmp_path: Path
) -> None:
    folder = changed(saved(random_model("Llama"), tmp_path), file, **values)
    with pytest.raises(UserError, match=f"cannot load .*{told}") as error:
        hebblm.load(folder, device="cpu")
    assert "\n" not in str(error.value)


def test_a_missing_part_of_the_weights_is_named(tmp_path: Path) -> None:
    random_model("Llama").save_pretrained(tmp_path, max_shard_size="20KB")
    tokenizer().save_pretrained(tmp_path)
    assert hebblm.load(tmp_path, device="cpu")
    first = min(tmp_path.glob("model-*.safetensors"))
    first.unlink()
    with pytest.raises(
        UserError, match=f"lacks {first.name}, which model.safetensors.index.json names"
    ):
        hebblm.load(tmp_path, device="cpu")
