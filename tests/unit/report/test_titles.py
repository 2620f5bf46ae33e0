from __future__ import annotations

import math
from dataclasses import replace

from hebblm.report import titles
from hebblm.report.render.result import Result
from hebblm.report.result.accuracy import Accuracy
from hebblm.report.result.parts import FrequencyBucket

from .samples import sample_result


def made(
    base: tuple[float, ...],
    hebb: tuple[float, ...],
    labels: tuple[str, ...] = ("<50", "50-100", ">100"),
) -> Result:
    """Return a result whose two methods have these losses, by training count and by occurrence of
    new words.
    """
    sample = sample_result(300, methods=("lstm", "hebb"))
    methods = {}
    for name, losses in (("lstm", base), ("hebb", hebb)):
        counts, times = (
            tuple(
                FrequencyBucket.from_nll(label, 100, loss)
                for label, loss in zip(names, losses, strict=True)
            )
            for names in (labels, ("1st", "2nd", "3rd"))
        )
        mean = sum(losses) / 3
        methods[name] = replace(
            sample.methods[name], nll=mean, perplexity=math.exp(mean), oov_nll=mean,
            frequency=counts,
            oov_occurrences=times, running=((1, 9.0), (300, mean)),
            accuracy=(Accuracy("All", 300, 0.1, 1 / (1 + mean), 0.2, 0.3, {}),),
        )  # fmt: skip
    return replace(sample, methods=methods)


def test_titles_have_the_number_of_the_best_method_and_of_the_base() -> None:
    result = made((7.0, 6.0, 5.0), (7.2, 5.0, 4.3))
    label = result.scenario.label
    assert titles.overall(result) == f"Gain over the base, nats a token\n{label}: Hebb +0.500"
    frequency = "Perplexity a token by frequency in training"
    assert titles.by_frequency(result) == f"{frequency}\n{label}: Hebb 244.69, Base 403.43"
    assert (
        titles.by_occurrence(result)
        == f"Nats a token on new words by occurrence\n{label}: Hebb 5.50, Base 6.00"
    )
    assert (
        titles.running(result) == f"Gain over the base so far, nats a token\n{label}: Hebb +0.500"
    )
    assert (
        titles.suggestions(result)
        == f"Words among five that are suggested\n{label}: Hebb 15.4 %, Base 14.3 %"
    )


def test_titles_name_the_base_where_it_is_best() -> None:
    result = made((7.0, 6.0, 5.0), (7.2, 6.2, 5.2))
    label = result.scenario.label
    assert titles.overall(result) == f"Gain over the base, nats a token\n{label}: Hebb -0.200"
    assert (
        titles.by_frequency(result)
        == f"Perplexity a token by frequency in training\n{label}: Base 403.43"
    )
    assert (
        titles.by_occurrence(result)
        == f"Nats a token on new words by occurrence\n{label}: Base 6.00"
    )
    assert (
        titles.running(result) == f"Gain over the base so far, nats a token\n{label}: Hebb -0.200"
    )
    assert (
        titles.suggestions(result) == f"Words among five that are suggested\n{label}: Base 14.3 %"
    )
    alone = replace(result, methods={"hebb": result.methods["hebb"]})
    assert (
        titles.by_frequency(alone)
        == f"Perplexity a token by frequency in training\n{label}: Hebb 492.75"
    )
    assert (
        titles.by_occurrence(alone)
        == f"Nats a token on new words by occurrence\n{label}: Hebb 6.20"
    )
