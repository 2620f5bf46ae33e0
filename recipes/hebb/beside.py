"""``best`` with one more part: Hebb, or as a control MbPA a second time.

Load it by ``hebblm-eval --plugin recipes/hebb/beside.py --methods lstm,best,best+mbpa,best+hebb``.

The new part begins with half of the share of MbPA at its own weight, query by query. With MbPA as
the new part the mixture so begins as ``best`` itself; what it gains is what a second row of the
gate gains. So what Hebb adds is its gain over that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hebblm.adapt.methods import register
from hebblm.adapt.methods.best import BestConfig, best_predictor
from hebblm.adapt.methods.gate import Gated
from hebblm.adapt.methods.hebb import HebbConfig, hebb_rule
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.ngram import NgramConfig
from hebblm.adapt.methods.predictor import Method, Predictor
from hebblm.adapt.settings import MethodSettings
from hebblm.errors import UserError


def with_part(settings: MethodSettings, name: str, part: Predictor) -> Gated:
    """Return ``best`` with one more part.

    Raises:
        UserError: ``best.parts`` has no MbPA, whose share the part would halve.
    """
    whole, beside = best_predictor(settings), Mbpa(settings[MbpaConfig])
    assert isinstance(whole, Gated)
    places = [at for at, predictor in enumerate(whole.predictors) if predictor == beside]
    if not places:
        raise UserError(
            f"best.parts = {settings[BestConfig].parts!r} must hold mbpa for {name}; add it"
        )
    at = places[-1]  # at its own weight; at weight 1 both rows of MbPA are alike
    first, rest = whole.weights[at][0], whole.weights[at][1:]
    halved = (first - math.log(2), *rest)  # the first feature is the constant 1
    weights = tuple(halved if place == at else row for place, row in enumerate(whole.weights))
    return replace(
        whole,
        name=name,
        learned_as=f"{whole.learned_as}, {name}",
        predictors=(*whole.predictors, part),
        weights=(*weights, halved),
    )


def _method(name: str, label: str, part: Callable[[MethodSettings], Predictor]) -> Method:
    return Method(
        name,
        label,
        "variant",
        lambda settings: with_part(settings, name, part(settings)),
        (BestConfig, MbpaConfig, NgramConfig, HebbConfig),
        tuned=False,
    )


register(_method("best+mbpa", "Best, MbPA twice", lambda settings: Mbpa(settings[MbpaConfig])))
register(_method("best+hebb", "Best+Hebb", hebb_rule))
