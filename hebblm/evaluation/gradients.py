"""The size of a model's gradients on its training text, computed once and kept in the cache."""

from __future__ import annotations

import torch
from torch import Tensor

from hebblm.download import cache_dir
from hebblm.files import hash_of
from hebblm.locks import held
from hebblm.models.base import Ids, TrainedModel, device_of, hash_of_ids
from hebblm.progress import duration, say
from hebblm.tensors import placed, read_tensors, write_tensors

SCHEMA, KIND = "hebblm-gradients/1", "hebblm-gradients"


def mean_squares(model: TrainedModel, ids: Ids, segment: int) -> list[Tensor]:
    """Return :meth:`TrainedModel.mean_squares` of a training text, from the cache if it is there.

    Args:
        model: whose gradients are meant.
        ids: (T,) training ids.
        segment: tokens a step.

    Raises:
        UserError: what is kept was changed, or the cache cannot be written to.
    """
    identity = [
        *(SCHEMA, torch.__version__, torch.get_num_threads(), device_of(model).type),
        *(model.sha256, model.reading(), segment),
        hash_of_ids(ids),
        [[name, str(p.dtype), list(p.shape)] for name, p in model.base().parameters().items()],
    ]
    path = cache_dir() / "gradients" / f"{hash_of(identity)}.safetensors"
    if not path.exists():
        with held(path, "the gradient statistics"):
            if not path.exists():  # another process may have computed them meanwhile
                found = model.mean_squares(ids, segment, _announce)
                write_tensors(path, {f"{i:05d}": each for i, each in enumerate(found)}, KIND)
                return found
    say(f"the gradient statistics of dynamic evaluation are there from an earlier run ({path})")
    tensors, _ = read_tensors(path, KIND, "delete it, it is computed anew")
    return [placed(tensors[name], device_of(model)) for name in sorted(tensors)]


def _announce(seconds: float) -> None:
    """Say how long the statistics take, and how to do without."""
    say(
        f"dynamic evaluation needs the gradients of the training text: about {duration(seconds)}, once for this model; "
        "the other methods do without (--methods)"
    )
