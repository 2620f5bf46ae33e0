"""Adapters of peft: those in folders are merged into their base, open ones are read as they
stand.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import hebblm
from hebblm.cli.eval import main as evaluate
from hebblm.cli.read import main as read
from hebblm.errors import UserError
from hebblm.models.catalog import ADAPTER_CONFIG as CONFIG
from hebblm.models.huggingface.adapter import PICKLED, SAVE, WEIGHTS

from .architectures import TEXT, changed, random_model, saved, tokenizer

peft = pytest.importorskip("peft")
TASK = {"task_type": "CAUSAL_LM"}
PLACES = {"target_modules": ["q_proj", "v_proj"]}
LORA = {**TASK, **PLACES, "r": 4}
KINDS = {
    "lora": lambda: peft.LoraConfig(**LORA),
    "dora": lambda: peft.LoraConfig(**LORA, use_dora=True, bias="all"),
    "of the output layer": lambda: peft.LoraConfig(
        **TASK, r=4, target_modules=["q_proj", "lm_head"]
    ),
    "with saved layers": lambda: peft.LoraConfig(
        **LORA, modules_to_save=["lm_head", "embed_tokens"]
    ),
    "with trained tokens": lambda: peft.LoraConfig(**LORA, trainable_token_indices=[3, 4]),
    "adalora": lambda: peft.AdaLoraConfig(**TASK, **PLACES, total_step=10),
    "loha": lambda: peft.LoHaConfig(**LORA),
    "lokr": lambda: peft.LoKrConfig(**LORA),
    "oft": lambda: peft.OFTConfig(**TASK, **PLACES, oft_block_size=4, r=0),
    "hra": lambda: peft.HRAConfig(**LORA),
    "vera": lambda: peft.VeraConfig(**LORA),
    "ia3": lambda: peft.IA3Config(
        **TASK, target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
    ),
    "ln": lambda: peft.LNTuningConfig(**TASK, target_modules=["input_layernorm"]),
}
UNMERGED = {
    "prompt": (lambda: peft.PromptTuningConfig(**TASK, num_virtual_tokens=8), "PROMPT_TUNING"),
    "p": (
        lambda: peft.PromptEncoderConfig(**TASK, num_virtual_tokens=8, encoder_hidden_size=8),
        "P_TUNING",
    ),
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return saved(random_model("Llama"), tmp_path / "base")


def adapted(config: Any, base: str | Path = "base", seed: int = 1, model: Any = None) -> Any:
    """Return a model with an adapter whose weights are no longer those it began with."""
    model = random_model("Llama") if model is None else model
    model.name_or_path = model.config._name_or_path = str(base)
    made = peft.get_peft_model(model, config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in made.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.2)
    return made.eval()


def losses(model: hebblm.LanguageModel) -> torch.Tensor:
    return model.reader("mixture").read(TEXT).nll


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_merged_into_its_base_or_read_as_it_stands(
    kind: str, base: Path, tmp_path: Path
) -> None:
    made = adapted(KINDS[kind](), base)
    made.save_pretrained(tmp_path / "adapter")
    lm = hebblm.load(tmp_path / "adapter", device="cpu")
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        found, expected = lm.model.model(ids).logits, made(ids).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        assert float((random_model("Llama")(ids).logits - expected).abs().max()) > 0.1
    assert lm.model.describe()["steps"] == "many"
    assert not any("lora" in name for name in lm.model.parameters)
    as_it_stands = (
        None if kind == "of the output layer" else losses(hebblm.load((made, tokenizer())))
    )
    expected = losses(hebblm.load((made.merge_and_unload(), tokenizer())))
    torch.testing.assert_close(losses(lm), expected, atol=1e-3, rtol=1e-3)
    if as_it_stands is not None:
        torch.testing.assert_close(as_it_stands, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("place", ["absolute", "from here", "from the adapter"])
def test_the_base_is_found_wherever_its_name_leads(
    place: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"absolute": str(base), "from here": "base", "from the adapter": "../../base"}[place]
    adapted(KINDS["lora"](), name).save_pretrained(tmp_path / "adapters" / "one")
    monkeypatch.chdir(tmp_path if place == "from here" else "/")
    expected = losses(hebblm.load((adapted(KINDS["lora"]()), tokenizer())))
    found = losses(hebblm.load(tmp_path / "adapters" / "one", device="cpu"))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def on_hub(cache: Path, name: str, folder: Path) -> None:
    """Put a folder into the hub's cache, as a download does."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, place / "snapshots" / ("0" * 40))


def test_adapter_and_base_are_found_on_the_hub(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = adapted(KINDS["lora"](), "someone/base")
    made.save_pretrained(tmp_path / "adapter")
    on_hub(tmp_path / "cache", "someone/base", base)
    on_hub(tmp_path / "cache", "someone/adapter", tmp_path / "adapter")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    expected = losses(hebblm.load((made, tokenizer())))
    for name in ("someone/adapter", tmp_path / "adapter"):
        found = losses(hebblm.load(name, device="cpu", cache_dir=str(tmp_path / "cache")))
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_tokens_that_were_added_in_training_are_kept(base: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    pieces = AutoTokenizer.from_pretrained(base)
    pieces.add_tokens([f"<{index}>" for index in range(25)])
    grown = random_model("Llama")
    grown.resize_token_embeddings(len(pieces))
    assert len(pieces) == 73
    made, folder = adapted(KINDS["lora"](), base, model=grown), tmp_path / "adapter"
    made.save_pretrained(folder)
    pieces.save_pretrained(folder)
    lm = hebblm.load(folder, device="cpu")
    (*_, last) = lm.vocabulary.encode("the cat <24>").ids
    assert last == 72
    ids = torch.tensor([[3, 4, 72, 71, 5]])
    with torch.no_grad():
        torch.testing.assert_close(
            lm.model.model(ids).logits, made(ids).logits, atol=1e-4, rtol=1e-4
        )
    held = load_file(folder / WEIGHTS)
    save_file(
        {name: tensor for name, tensor in held.items() if "lm_head" not in name}, folder / WEIGHTS
    )
    with pytest.raises(
        UserError,
        match=r"has 73 rows for tokens and no .*lm_head.weight.*save_embedding_layers=True",
    ):
        hebblm.load(folder, device="cpu")
    made.save_pretrained(folder, save_embedding_layers=True)
    assert hebblm.load(folder, device="cpu").vocabulary.known == 73


def test_the_memory_of_a_base_is_refused_for_the_merged_model(base: Path, tmp_path: Path) -> None:
    adapted(KINDS["lora"](), base).save_pretrained(tmp_path / "one")
    adapted(KINDS["lora"](), base, seed=2).save_pretrained(tmp_path / "two")
    for name in ("base", "one"):
        reader = hebblm.load(tmp_path / name, device="cpu").reader("mixture")
        reader.read(TEXT)
        reader.save(tmp_path / f"memory of {name}")
    one, two = (hebblm.load(tmp_path / name, device="cpu") for name in ("one", "two"))
    assert len(one.reader("mixture", memory=tmp_path / "memory of one")) > 0
    for lm, memory in ((one, "base"), (two, "base"), (two, "one")):
        with pytest.raises(UserError, match="another model"):
            lm.reader("mixture", memory=tmp_path / f"memory of {memory}")


def test_commands_take_the_folder_of_an_adapter(
    base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    adapted(KINDS["lora"](), base).save_pretrained(tmp_path / "adapter")
    (tmp_path / "a.txt").write_text(TEXT * 3)
    folder, text = str(tmp_path / "adapter"), str(tmp_path / "a.txt")
    assert read([folder, text, "--method", "mixture"]) == 0
    assert (
        evaluate(
            ["--model", folder, "--text", text, "--methods", "base,mixture", "--device", "cpu"]
        )
        == 0
    )
    changed(tmp_path / "adapter", CONFIG, peft_type="PROMPT_TUNING")
    capfd.readouterr()
    for command, arguments in (
        (read, [folder, text]),
        (evaluate, ["--model", folder, "--text", text]),
    ):
        assert command(arguments) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert (
            "PROMPT_TUNING cannot be merged into the weights of a model; what can be merged is "
            "LORA, " in line
        )


@pytest.mark.parametrize("kind", UNMERGED)
def test_tokens_before_every_text_are_refused(kind: str, base: Path, tmp_path: Path) -> None:
    config, name = UNMERGED[kind]
    made = peft.get_peft_model(random_model("Llama"), config())
    with pytest.raises(
        UserError, match=rf"^PeftModelForCausalLM adds 8 virtual tokens \({name}\) to every text"
    ):
        hebblm.load((made, tokenizer()))
    made.save_pretrained(tmp_path / "adapter")
    with pytest.raises(
        UserError, match=f"{name} cannot be merged .*; what can be merged is LORA, "
    ):
        hebblm.load(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"task_type": "SEQ_CLS"},
            "the adapter is for SEQ_CLS, and hebblm reads those for CAUSAL_LM",
        ),
        ({"peft_type": "XLORA"}, "XLORA cannot be merged"),
        ({"alora_invocation_tokens": [3]}, "an activated LoRA cannot be merged"),
        (
            {"megatron_config": {"a": 1}, "megatron_core": "theirs"},
            "megatron_config names code to run; leave it out",
        ),
        (
            {"base_model_name_or_path": None},
            "names no base model; write its folder or hub id as base_model_name_or",
        ),
        (
            {"base_model_name_or_path": "/no/where"},
            "the base '/no/where' is not a folder here; write its folder or hub",
        ),
        ({"target_modules": ["k_proj"]}, "lacks 4 weights"),
        ({"r": 3}, "cannot load .*an adapter: Error"),
    ],
)
def test_an_adapter_that_cannot_be_merged_gets_one_line(
    values: dict[str, Any], told: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted(KINDS["lora"](), base).save_pretrained(tmp_path / "adapter")
    changed(tmp_path / "adapter", CONFIG, **values)
    (tmp_path / "theirs.py").write_text("raise SystemExit('theirs ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=told) as error:
        hebblm.load(tmp_path / "adapter", device="cpu")
    assert "\n" not in str(error.value)


def test_an_adapter_on_an_adapter_is_read_once_the_first_one_is_merged(
    base: Path, tmp_path: Path
) -> None:
    first = adapted(KINDS["lora"](), base)
    first.save_pretrained(tmp_path / "first")
    adapted(KINDS["ia3"](), tmp_path / "first").save_pretrained(tmp_path / "second")
    with pytest.raises(
        UserError,
        match=r"first, an adapter as well; merge that one with merge_and_unload, and save",
    ):
        hebblm.load(tmp_path / "second", device="cpu")
    shutil.rmtree(tmp_path / "first")
    saved(first.merge_and_unload(), tmp_path / "first")
    assert hebblm.load(tmp_path / "second", device="cpu").reader("mixture").read(TEXT)


def test_pickled_weights_of_an_adapter_are_refused_and_can_be_saved_anew(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "adapter"
    adapted(KINDS["lora"](), base).save_pretrained(folder)
    expected = losses(hebblm.load(folder, device="cpu"))
    torch.save(load_file(folder / WEIGHTS), folder / PICKLED)
    (folder / WEIGHTS).unlink()
    with pytest.raises(UserError, match=rf"{PICKLED} is pickled, and could run anything") as error:
        hebblm.load(folder, device="cpu")
    remedy = str(error.value).partition("run: ")[2]
    assert remedy == SAVE.partition("run: ")[2]
    subprocess.run([sys.executable, "-c", remedy], cwd=folder, check=True)
    torch.testing.assert_close(losses(hebblm.load(folder, device="cpu")), expected)
    (folder / PICKLED).unlink()
    (folder / WEIGHTS).unlink()
    with pytest.raises(
        UserError, match=f"{WEIGHTS} does not exist; save the adapter there with save_pretrained"
    ):
        hebblm.load(folder, device="cpu")


def test_a_model_beside_an_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    adapted(KINDS["lora"](), base).save_pretrained(base)
    with pytest.raises(
        UserError,
        match=r"holds a model \(model.safetensors\) and an adapter .*; move one of them to",
    ):
        hebblm.load(base, device="cpu")
    (tmp_path / "moved").mkdir()
    for name in (CONFIG, WEIGHTS):
        (base / name).rename(tmp_path / "moved" / name)
    assert not torch.equal(losses(hebblm.load(base)), losses(hebblm.load(tmp_path / "moved")))


def test_without_peft_one_line_says_how_to_install_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted(KINDS["lora"](), base).save_pretrained(tmp_path / "adapter")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        UserError,
        match=r"adapter_config.json is an adapter; install peft: .*pip install -e '\.\[peft\]'",
    ):
        hebblm.load(tmp_path / "adapter")
    assert hebblm.load(base, device="cpu")


def test_an_open_adapter_goes_on_from_what_it_has_read_and_learns() -> None:
    lm = hebblm.load((adapted(KINDS["lora"]()), tokenizer()), learns=["lora"])
    assert lm.model.steps == "many"
    rule = {"dynamic.rule": "sgd", "dynamic.lr": 0.1}
    moved = lm.reader("dynamic", settings=rule, update_every=5).read(TEXT).nll
    assert float((moved - losses(lm)).abs().max()) > 1e-3


def test_an_open_adapter_of_the_output_layer_is_read_when_it_is_merged() -> None:
    model = adapted(KINDS["of the output layer"]())
    with pytest.raises(
        UserError, match="an adapter changes the output layer of LlamaForCausalLM"
    ) as error:
        hebblm.load((model, tokenizer()))
    remedy = "model = model.merge_and_unload()"
    assert remedy in str(error.value)
    space = {"model": model}
    exec(remedy, space)
    assert hebblm.load((space["model"], tokenizer())).reader("mixture").read(TEXT)
    invoked = adapted(peft.LoraConfig(**LORA, alora_invocation_tokens=[3]))
    with pytest.raises(
        UserError, match=r"^PeftModelForCausalLM does more than the layers of its adapter compute"
    ):
        hebblm.load((invoked, tokenizer()))


def test_an_adapter_that_is_switched_is_another_model(tmp_path: Path) -> None:
    model = adapted(KINDS["lora"]())
    model.add_adapter("other", KINDS["lora"]())
    lm = hebblm.load((model, tokenizer()))
    reader = lm.reader("mixture")
    reader.read(TEXT)
    reader.save(tmp_path / "memory")
    for change in (lambda: model.set_adapter("other"), model.base_model.disable_adapter_layers):
        change()
        with pytest.raises(
            UserError, match=r"the weights changed since hebblm.load; load the model again"
        ):
            lm.reader("mixture")
        with pytest.raises(UserError, match="another model"):
            hebblm.load((model, tokenizer())).reader("mixture", memory=tmp_path / "memory")
    model.base_model.enable_adapter_layers()
    model.set_adapter("default")
    assert len(hebblm.load((model, tokenizer())).reader("mixture", memory=tmp_path / "memory")) > 0
