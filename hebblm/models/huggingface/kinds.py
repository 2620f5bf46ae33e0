"""Kinds of models that hebblm does not read, refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hebblm.errors import UserError

READS = "hebblm reads causal language models"
TASKS = {
    "ForSequenceClassification": "classifies texts or rates them",
    "ForTokenClassification": "classifies tokens",
    "ForQuestionAnswering": "marks answers in a text",
    "ForMultipleChoice": "chooses between texts",
    "ForMaskedLM": "fills in masked tokens",
}
"""What the models of a class do instead of predicting the next token, by the end of the class's name."""


def check_kind(kind: str, config: Any, where: str = "") -> None:
    """Refuse a model that does not predict the next token of a text.

    Args:
        kind: name of its class.
        config: its configuration.
        where: beginning of the message.

    Raises:
        UserError: it is an encoder-decoder, or its class is for another task.
    """
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(f"{where}{kind} is an encoder-decoder; {READS}")
    for ending, task in TASKS.items():
        if kind.endswith(ending):
            raise UserError(f"{where}{kind} {task}; {READS}")


def kind_of(config: Any) -> str:
    """Return the name of the class that a model was saved from, or of its architecture where that is not known."""
    names = config.architectures
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else str(config.model_type)


@contextmanager
def probing(kind: str) -> Iterator[None]:
    """Turn what a model raises while its first tokens are read into one line that names its kind.

    Args:
        kind: name of the model's class.

    Raises:
        UserError: the model raised anything.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of any kind: architectures check their configuration as they compute
        raise UserError(
            f"{kind} cannot read a text that is given as token ids alone ({line(error)}); {READS} that can"
        ) from error


def line(error: Exception) -> str:
    """Return the beginning of what an error says, behind its kind."""
    said = [each.strip() for each in str(error).splitlines() if each.strip()]
    return ": ".join([type(error).__name__, *(each[:200] for each in said[:1])])
