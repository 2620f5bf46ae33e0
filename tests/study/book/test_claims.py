from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hebblm.report.result import FrequencyBucket, Result
from recipes.study.book.claims import Claim, claim_tables, language_claims, other_settings_tables, pair_claims
from recipes.study.book.image_claims import image_claims

from .samples import across, online, permuted, within

PAPER_ORDER = {
    "lstm": 4.5,
    "mixture": 4.4,
    "mbpa": 4.3,
    "hebb": 4.2,
    "mixture_mbpa": 4.1,
    "mixture_hebb": 4.0,
}


def by_text(result: Result) -> dict[str, Claim]:
    return {claim.text: claim for claim in language_claims({"run": result})}


def test_orders_are_those_of_the_papers_numbers() -> None:
    claims = by_text(within(**PAPER_ORDER))
    orders = {text: claim for text, claim in claims.items() if "rare" not in text}
    assert len(orders) == 10
    assert all(claim.holds for claim in orders.values())
    hebb = claims["Hebb better than MbPA, ptb test"]
    assert hebb.paper == pytest.approx(math.log(56.68 / 56.39))
    assert hebb.here == pytest.approx(0.1)
    # On Penn Treebank's test text the paper has Mixture behind MbPA, on WikiText-2's before it.
    assert claims["MbPA better than Mixture, ptb test"].here == pytest.approx(0.1)
    best = claims["Mixture+Hebb best of the paper's methods, ptb test"]
    assert best.paper == pytest.approx(math.log(55.58 / 55.13))
    assert best.here == pytest.approx(0.1)


def test_a_reversed_order_does_not_hold() -> None:
    claims = by_text(within(**{**PAPER_ORDER, "hebb": 4.35}))
    assert not claims["Hebb better than MbPA, ptb test"].holds
    assert claims["Hebb better than MbPA, ptb test"].here == pytest.approx(-0.05)
    assert claims["Hebb better than Base, ptb test"].holds
    equal = by_text(within(**{**PAPER_ORDER, "hebb": 4.3}))["Hebb better than MbPA, ptb test"]
    assert not equal.holds


def test_infinite_losses() -> None:
    claims = by_text(within(**{**PAPER_ORDER, "hebb": math.inf}))
    assert claims["Hebb better than MbPA, ptb test"].here == -math.inf
    both = by_text(within(**{**PAPER_ORDER, "hebb": math.inf, "mbpa": math.inf}))
    assert both["Hebb better than MbPA, ptb test"].here == 0


@pytest.mark.parametrize(("rare", "holds"), [(5.0, True), (5.9, False)])
def test_where_hebb_gains_within_a_domain(rare: float, holds: bool) -> None:
    result = within(**PAPER_ORDER)
    losses = {"mbpa": (6.0, 2.0), "hebb": (rare, 1.5)}
    methods = {
        name: replace(
            item,
            frequency=(
                FrequencyBucket.from_nll("<50", 5, losses[name][0]),
                FrequencyBucket.from_nll(">500", 9, losses[name][1]),
            ),
        )
        if name in losses
        else item
        for name, item in result.methods.items()
    }
    claims = by_text(replace(result, methods=methods))
    claim = next(claim for text, claim in claims.items() if "rare words" in text)
    assert claim.paper == pytest.approx(math.log(3061.75 / 2840.84) - math.log(13.64 / 13.13))
    assert claim.here == pytest.approx(6.0 - rare - 0.5)
    assert claim.holds is holds


def test_across_domains_new_words_are_claims_of_their_own() -> None:
    result = across()
    claims = by_text(result)
    assert len(claims) == 21
    oov = claims["Hebb better than MbPA, wt2-to-ptb test, OOV words"]
    assert oov.paper == pytest.approx(12.04 - 10.36)
    mbpa, hebb = result.methods["mbpa"], result.methods["hebb"]
    assert mbpa.oov_nll is not None
    assert hebb.oov_nll is not None
    assert oov.here == pytest.approx(mbpa.oov_nll - hebb.oov_nll)
    more = claims["Hebb gains more on MbPA on OOV words than on all, wt2-to-ptb test"]
    assert more.paper == pytest.approx(1.68 - 0.13)
    assert more.here == pytest.approx(oov.here - (mbpa.nll - hebb.nll))


def test_runs_that_the_paper_has_not_are_left_out() -> None:
    assert language_claims({"part": within(tokens=8_000)}) == []
    assert language_claims({"part": within(tokens=8_300)}) != []
    assert (
        language_claims({"own": replace(within(), scenario=replace(within().scenario, source="novel"))}) == []
    )


def test_a_pair_that_a_side_lacks_is_no_claim() -> None:
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    claims = list(
        pair_claims("here", "run", {"a": 1.0, "b": 2.0, "c": 1.0}, {"a": 3.0, "b": 1.0}, pairs, str.upper)
    )
    assert claims == [Claim("A better than B, here", "run", 1.0, -2.0, "a", "b")]


def test_tables_part_what_holds_from_what_does_not() -> None:
    claims = [Claim("x", "r", 1.0, 0.5), Claim("y", "r", None, -0.5, reason="why"), Claim("z", "r", 1.0, 0.1)]
    missed, held = claim_tables(claims, "nats")
    assert missed.title == "What did not reproduce (nats)"
    assert missed.text() == [["y", "r", "-", "-0.500", "why"]]
    assert [row[0] for row in held.rows] == ["x", "z"]
    assert len(held.columns) == len(missed.columns) - 1, "what reproduced needs no reason"
    assert "1 of 3" in missed.notes[0]
    assert claim_tables([], "nats") == []


def test_other_settings_stand_beside_the_run_that_counts() -> None:
    counted = [Claim("x", "main", 1.0, 0.5), Claim("y", "main", 2.0, -0.1), Claim("z", "else", 1.0, 0.2)]
    others = [Claim("x", "every-1", 1.0, 0.7), Claim("x", "paper", 1.0, -3.0), Claim("y", "paper", 2.0, 0.4)]
    (table,) = other_settings_tables(counted, others)
    assert [column.subheader for column in table.columns] == ["", "paper", "main", "every-1", "paper"]
    assert table.rows == (("x", 1.0, 0.5, 0.7, -3.0), ("y", 2.0, -0.1, None, 0.4))
    assert other_settings_tables(counted, []) == []


def test_reasons_on_images_are_the_scale_and_the_spread_of_the_seeds() -> None:
    document = online(mbpa=0.55, hebb=0.54)
    reasons = {c.text: c.reason for c in image_claims({"run": document}) if not c.holds}
    assert reasons["Hebb better than MbPA, online, new classes"] == "scale small, network resnet50-w16"
    for method, std in (("mbpa", 0.009), ("hebb", 0.012)):
        for point in document["methods"][method]["conditions"]["50"].values():
            if isinstance(point, dict):
                point["std"] = std
    reasons = {c.text: c.reason for c in image_claims({"run": {**document, "scale": "paper"}}) if not c.holds}
    assert (
        reasons["Hebb better than MbPA, online, new classes"]
        == "within the spread of the seeds (1.50 points)"
    )


def test_images_are_compared_by_right_answers() -> None:
    claims = {
        c.text: c for c in image_claims({"run": online(parametric=0.5, mixture=0.52, mbpa=0.55, hebb=0.54)})
    }
    hebb = claims["Hebb better than MbPA, online, new classes"]
    assert hebb.paper == pytest.approx(41.46 - 38.56)
    assert hebb.here == pytest.approx(-1.0)
    assert claims["Mixture better than Parametric, online, overall classes"].here == pytest.approx(2.0)
    # On old classes the paper has MbPA before Hebb.
    assert claims["MbPA better than Hebb, online, old classes"].holds


def test_permuted_mnist_has_an_order_without_numbers() -> None:
    claims = {c.text: c for c in image_claims({"run": permuted()})}
    assert list(claims) == [
        "Hebb better than MbPA, permuted MNIST",
        "MbPA better than EWC, permuted MNIST",
        "EWC better than MLP, permuted MNIST",
    ]
    assert [claim.paper for claim in claims.values()] == [None] * 3
    assert [round(claim.here, 6) for claim in claims.values()] == [-5.0, 10.0, 30.0]


def test_other_data_and_experiments_are_no_claims() -> None:
    digits = {**online(hebb=0.9, mbpa=0.8), "data": {"name": "digits"}}
    assert image_claims({"run": digits, "odd": permuted(experiment="juggling")}) == []
