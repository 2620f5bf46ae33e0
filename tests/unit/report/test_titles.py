from __future__ import annotations

import math
from dataclasses import replace

from hebblm.report import titles
from hebblm.report.accuracy import Accuracy
from hebblm.report.buckets import FrequencyBucket
from hebblm.report.result import Result

from .samples import sample_result


def made(
    base: tuple[float, ...], hebb: tuple[float, ...], labels: tuple[str, ...] = ("<50", "50-100", ">100")
) -> Result:
    """Return a result whose two methods have these losses, by training count and by occurrence of new words."""
    sample = sample_result(300, methods=("lstm", "hebb"))
    methods = {}
    for name, losses in (("lstm", base), ("hebb", hebb)):
        counts, times = (
            tuple(FrequencyBucket.from_nll(label, 100, loss) for label, loss in zip(names, losses, strict=True))
            for names in (labels, ("1st", "2nd", "3rd"))
        )
        mean = sum(losses) / 3
        methods[name] = replace(
            sample.methods[name], nll=mean, perplexity=math.exp(mean), oov_nll=mean, frequency=counts,
            oov_occurrences=times, running=((1, 9.0), (300, mean)),
            accuracy=(Accuracy("All", 300, 0.1, 1 / (1 + mean), 0.2, 0.3, {}),),
        )  # fmt: skip
    return replace(sample, methods=methods)


def test_titles_say_what_the_numbers_say() -> None:
    result = made((7.0, 6.0, 5.0), (7.2, 5.0, 4.3))
    label = result.scenario.label
    assert titles.overall(result) == f"Hebb gains 0.500 nats a token over the base\n{label}"
    assert titles.by_frequency(result) == f"Hebb gains most on words trained on 50-100 times\n{label}"
    assert titles.by_occurrence(result) == f"Hebb gains on new words from the 2nd occurrence on\n{label}"
    assert titles.running(result) == f"Hebb ends at perplexity 244.69 a token, the base at 403.43\n{label}"
    assert (
        titles.suggestions(result) == f"Hebb has 15.4 % of the words among five suggestions, the base 14.3 %\n{label}"
    )


def test_titles_claim_no_gain_where_there_is_none() -> None:
    result = made((7.0, 6.0, 5.0), (7.2, 6.2, 5.2))
    label = result.scenario.label
    assert titles.overall(result) == f"No method gains over the base\n{label}"
    assert titles.by_frequency(result) == f"Hebb gains at no frequency in training\n{label}"
    assert titles.by_occurrence(result) == f"Hebb gains nothing on the most frequent new words\n{label}"
    assert titles.running(result) == f"Base ends at perplexity 403.43 a token\n{label}"
    assert titles.suggestions(result) == f"Base has 14.3 % of the words among five suggestions\n{label}"
    alone = replace(result, methods={"hebb": result.methods["hebb"]})
    assert titles.by_frequency(alone) == f"Perplexity by frequency in training\n{label}"
    assert titles.by_occurrence(alone) == f"Loss on new words by occurrence\n{label}"


def test_buckets_that_the_base_lacks_have_no_gain() -> None:
    result = made((7.0, 6.0, 5.0), (5.0, 5.5, 4.9))
    other = replace(result.methods["lstm"], frequency=result.methods["lstm"].frequency[1:])
    title = titles.by_frequency(replace(result, methods={**result.methods, "lstm": other}))
    assert "gains most on words trained on 50-100 times" in title
