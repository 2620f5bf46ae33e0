"""Log of the shares of every mixture's parts in the first tokens of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from torch import Tensor

from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.components import owned
from hebblm.adapt.methods.predictor import Predictor
from hebblm.evaluation.observers import Notes
from hebblm.text import EvaluationStream


@dataclass(slots=True)
class ComponentLog(Notes):
    """An observer that records the share of each component in the probability of every token.

    Its columns have one row per token. Their names are the numbers of method and component, which
    give the order, and the name of the component. A word without a row has shares of 0.

    Args:
        tokens: number of tokens to log, from the beginning of the stream.
        predictors: rules by method.
    """

    tokens: int
    predictors: Mapping[str, Predictor]

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        wanted = min(self.tokens - int(batch.context.observed.sum()), len(batch.hidden))
        if wanted <= 0:
            return
        known = targets < len(batch.head.weight)
        asked = targets if known.all() else targets.where(known, 0)
        columns: dict[str, Tensor] = {}
        for number, predictor in enumerate(self.predictors.values()):
            for place, (name, share) in enumerate(owned(predictor, batch, asked).items()):
                columns[f"{number:03} {place:03} {name}"] = share.where(known, 0)[:wanted].float()
        self.add(columns)


def component_table(log: ComponentLog, stream: EvaluationStream) -> pa.Table:
    """Return one row per token, method and component: position, method, component, share.

    If tokens are pieces of words, a position is that of a word, and its shares are the means of its
    pieces' shares.
    """
    methods = list(log.predictors)
    columns = log.columns()
    parts: dict[str, list[object]] = {"position": [], "method": [], "component": [], "share": []}
    for title, mixture_weights in sorted(columns.items()):  # a resumed run read them in any order
        number, _, name = title.split(" ", 2)
        if stream.pieces is not None:
            pieces, _ = stream.pieces.cut(len(mixture_weights))
            mixture_weights = pieces.sums(mixture_weights) / np.maximum(
                pieces.sums(np.ones(len(mixture_weights))), 1e-9
            )
        parts["position"] += range(len(mixture_weights))
        parts["method"] += [methods[int(number)]] * len(mixture_weights)
        parts["component"] += [name] * len(mixture_weights)
        parts["share"] += mixture_weights.tolist()
    kinds = {
        "position": pa.int64(),
        "method": pa.string(),
        "component": pa.string(),
        "share": pa.float32(),
    }
    return pa.table({name: pa.array(parts[name], type=kind) for name, kind in kinds.items()})
