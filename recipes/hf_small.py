"""Train the small Llama-shaped model under data/models: byte-level BPE, WikiText-2, transformers
and accelerate.

Usage: python recipes/hf_small.py RUN [--destination data/models/llama-wt2-small] [options]; an
interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

from hebblm.io.files import write_json, write_text
from hebblm.io.provenance import command_line, provenance
from hebblm.text.corpora import Corpus, resolve

LIMIT = 20_000_000  # bytes; models travel with the source
CARD = """---
library_name: transformers
pipeline_tag: text-generation
license: cc-by-sa-3.0
---
# A small Llama-shaped model of {corpus}

{parameters:,} parameters, a byte-level BPE of {pieces:,} pieces, context {context}; trained by \
`{command}`
([training.json](training.json) says with which versions and settings). \
`<unk>` of the text is one piece.

| text | perplexity a word | bits a byte |
| --- | --- | --- |
{rows}

Windows overlap by half; an end of line counts as a word. \
Trained on WikiText-2, whose licence is CC BY-SA 3.0.
"""
END, UNKNOWN = "<|endoftext|>", "<unk>"


class Windows(Dataset[dict[str, torch.Tensor]]):
    """A text as windows of ``context`` tokens one after the other; the rest at the end is not read.

    Args:
        ids: (T,) int64.
        context: tokens of a window.
    """

    def __init__(self, ids: torch.Tensor, context: int) -> None:
        self.windows = ids[: len(ids) // context * context].view(-1, context)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.windows[index], "labels": self.windows[index]}


def text_of(corpus: Corpus, split: str) -> str:
    """Return a split as one string: words apart by one space, each line with its break."""
    return "".join(" ".join(line.split()) + "\n" for line in corpus.lines(split))


def train_tokenizer(text: str, vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE, in which ``<unk>`` of the text is one piece."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(text.splitlines(keepends=True), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=END, eos_token=END)


@torch.no_grad()
def measure(
    model: LlamaForCausalLM, ids: torch.Tensor, words: int, size: int, context: int
) -> dict[str, float]:
    """Return the loss of a text by word, by piece and by byte, read in windows that overlap by
    half.

    Args:
        model: in evaluation mode.
        ids: (T,) int64.
        words: of the text, an end of line being one.
        size: bytes of the text.
        context: tokens of a window.
    """
    total, counted = 0.0, 0
    for start in range(0, len(ids) - 1, context // 2):
        window = ids[start : start + context]
        fresh = min(len(window) - 1, len(window) - 1 if start == 0 else len(window) - context // 2)
        if fresh > 0:
            scores = model(input_ids=window[None]).logits[0, :-1].log_softmax(1)  # (L - 1, V)
            nll = -scores.gather(1, window[1:, None])[:, 0]
            total, counted = total + float(nll[-fresh:].double().sum()), counted + fresh
    if counted != len(ids) - 1:
        raise AssertionError(f"{counted} of {len(ids) - 1} pieces were scored")
    return {
        "nats_per_word": total / words,
        "word_perplexity": math.exp(total / words),
        "nats_per_piece": total / counted,
        "bits_per_byte": total / math.log(2) / size,
    }


def card(record: dict[str, Any], pieces: int) -> str:
    """Return the text that the hub shows about the model."""
    rows = [
        f"| {split} | {scores['word_perplexity']:.2f} | {scores['bits_per_byte']:.4f} |"
        for split, scores in record["scores"].items()
    ]
    return CARD.format(
        corpus=record["corpus"],
        parameters=record["parameters"],
        pieces=pieces,
        context=record["settings"]["context"],
        command=record["command"],
        rows="\n".join(rows),
    )


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run, with its checkpoints")
    parser.add_argument(
        "--destination", type=Path, help="folder of the float16 model; RUN/model unless said"
    )
    parser.add_argument("--corpus", default="wt2")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1111)
    parser.add_argument(
        "--bf16", action="store_true", help="products in bfloat16, on processors that have it"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    given = parsed(argv)
    corpus = resolve(given.corpus)
    texts = {split: text_of(corpus, split) for split in ("train", "valid", "test")}
    tokenizer = train_tokenizer(texts["train"], given.vocabulary)
    ids = {split: torch.tensor(tokenizer(text)["input_ids"]) for split, text in texts.items()}
    torch.manual_seed(given.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=given.width,
            intermediate_size=given.width * 11 // 4,
            num_hidden_layers=given.layers,
            num_attention_heads=given.width // 32,
            max_position_embeddings=given.context,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    print(f"{model.num_parameters():,} parameters, {len(ids['train']):,} pieces", flush=True)
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(given.run),
            per_device_train_batch_size=given.batch,
            num_train_epochs=given.epochs,
            learning_rate=given.lr,
            lr_scheduler_type="cosine",
            warmup_steps=200,
            weight_decay=0.1,
            adam_beta2=0.95,
            bf16=given.bf16,
            use_cpu=not torch.cuda.is_available(),
            logging_steps=50,
            save_steps=250,
            save_total_limit=2,
            seed=given.seed,
            report_to=[],
        ),
        train_dataset=Windows(ids["train"], given.context),
    )
    trainer.train(
        resume_from_checkpoint=get_last_checkpoint(str(given.run)) if given.run.is_dir() else None
    )
    model.eval()
    record: dict[str, Any] = {
        "command": f"python {command_line('recipes/hf_small.py', argv)}",
        "provenance": provenance(
            "python recipes/hf_small.py", device=str(model.device), seed=given.seed
        ),
        "parameters": model.num_parameters(),
        "corpus": corpus.name,
        "settings": {
            name: value for name, value in vars(given).items() if name not in ("run", "destination")
        },
        "scores": {
            split: measure(
                model.float(),
                ids[split].to(model.device),
                len(text.split()) + text.count("\n"),
                len(text.encode()),
                given.context,
            )
            for split, text in texts.items()
            if split != "train"
        },
    }
    folder = given.destination or given.run / "model"
    model.config.use_cache = True  # training has no use for one
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / "training.json", record)
    write_text(folder / "README.md", card(record, len(tokenizer)))
    print(json.dumps(record["scores"], indent=1))
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > LIMIT:
        sys.exit(f"{folder} has {size:,} bytes, over the limit of {LIMIT:,}")


if __name__ == "__main__":
    main()
