"""Goals of cost, and whether a measurement reached them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from recipes.bench.record import Row, of_one_vocabulary
from recipes.bench.timing import Spread, exponent

Measure = Callable[[Sequence[Row]], "Finding | None"]
PAPER_SIZE = {"dim": 400, "k": 200, "batch": 100}
MILLION = 1_000_000
WT2_ENTRIES = 2_300_000  # WikiText-2: training text and test stream
WT2_CLASSES = 33_278
FLAT = 1.1  # a cost that grows by less than a tenth over the stream is called flat
LINEAR = 1.1  # largest exponent that is called linear
# times naive, by V and S
ADAPTATION = {(10_000, 1): 45, (10_000, 5): 140, (33_278, 1): 250, (33_278, 5): 700}
HEBBIAN = 0.01  # of MbPA
SEARCH_MS, SEARCH_TIMES = 0.25, 30  # and times exact search
EVALUATION = 2  # times the unadapted base
NETWORK = 20  # times automatic differentiation


@dataclass(frozen=True, slots=True)
class Finding:
    """Measured numbers of a goal."""

    text: str  # the numbers
    met: bool  # whether they reach it


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and how to find what was measured for it."""

    text: str  # in words
    measure: Measure  # returns the finding, or None where no row is about it


def goals() -> tuple[Goal, ...]:
    """Return all goals, in the order of the table."""
    adaptation = [
        Goal(
            f"MbPA and Hebb, V = {classes:,}, S = {steps}: at least {times}x the naive form",
            partial(_adaptation, classes=classes, steps=steps, wanted=times),
        )
        for (classes, steps), times in ADAPTATION.items()
    ]
    caches = [
        Goal(
            f"continuous cache, W = {window:,}, V = {classes:,}: at least {times:,}x the classic "
            "loop, same to 1e-5",
            partial(_cache, classes=classes, window=window, wanted=times),
        )
        for classes, window, times in ((10_000, 500, 200), (33_278, 3785, 2000))
    ]
    return (
        *adaptation,
        Goal(
            "error of the fast form, real states: mean 1e-4 nats, KL 1e-6, perplexity bias 0.01 % "
            "at most",
            _error,
        ),
        Goal("Hebb on top of MbPA: at most 1 %", _overhead),
        *caches,
        Goal(
            "an update at every token: at most 1.3x one a mini-batch, the losses of tokens taken "
            "one by one to 1e-5",
            _currency,
        ),
        Goal(
            "MbPA over a two-layer network, K = 50: at least 20x automatic differentiation",
            _network,
        ),
        Goal(
            "retrieval, 1 M entries: at most 0.25 ms a token, recall 0.99, 30x exact search",
            _retrieval,
        ),
        Goal("whole evaluation, 100,000 entries: at most 2x the unadapted base", _evaluation),
        Goal("peak memory, 2.3 M entries, V = 33,278: at most 8 GiB", _peak),
        Goal("cost a token flat over the stream", _flat),
        Goal("retrieval sub-linear in the memory's size", _retrieval_growth),
        Goal("evaluation sub-linear in the memory's size", _evaluation_growth),
        Goal("adaptation linear in K", _linear),
    )


def _named(rows: Sequence[Row], name: str, **case: object) -> list[Row]:
    """Return the rows of a name whose case has these values."""
    return [
        row
        for row in rows
        if row.name == name and all(row.case.get(key) == value for key, value in case.items())
    ]


def _is_real(row: Row) -> bool:
    """Return whether a row's states are those of a trained model."""
    return bool(row.case["source"]["kind"] == "model")


def _spread(value: Spread, unit: str = "x") -> str:
    """Return median and extremes."""
    median, low, high = (
        f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
        for number in (value.median, value.low, value.high)
    )
    return f"{median}{unit} ({low} to {high})"


def _above_floor(row: Row, name: str, cost: float) -> str:
    """Return a floor and how many times it ``cost`` (milliseconds a token) is; nothing where no
    floor was counted.
    """
    floor = row.floors.get(name)
    return "" if floor is None else f", {cost / floor:.3g} times the floor of {floor:.2g}"


def _adaptation(rows: Sequence[Row], *, classes: int, steps: int, wanted: float) -> Finding | None:
    found = _named(rows, "adapt", vocabulary=classes, steps=steps, **PAPER_SIZE)
    if not found:
        return None
    row = found[-1]
    mbpa, hebb = row.faster("fast_mbpa"), row.faster("fast_hebb")
    cost = row.milliseconds("fast_mbpa")
    if "products" in row.timings:  # before floors were counted
        least = (
            f", of which matrix products that cannot be spared {row.milliseconds('products'):.2g}"
        )
    else:
        least = _above_floor(row, "fast_mbpa", cost)
    return Finding(
        f"MbPA {_spread(mbpa)}, Hebb {_spread(hebb)}; {cost:.3g} ms a token{least}",
        min(mbpa.median, hebb.median) >= wanted,
    )


def _error(rows: Sequence[Row]) -> Finding | None:
    found = [row for row in _named(rows, "adapt") if _is_real(row)]
    if not found:
        return None
    mean = max(row.values["error_mean"] for row in found)
    largest = max(row.values["error_max"] for row in found)
    divergence = max(row.values["kl"] for row in found)
    bias = max((row.values["perplexity_bias_percent"] for row in found), key=abs)
    return Finding(
        f"mean {mean:.2g}, largest {largest:.2g} nats; KL {divergence:.2g}; bias {bias:+.2g} %",
        mean <= 1e-4 and divergence <= 1e-6 and abs(bias) <= 0.01,
    )


def _overhead(rows: Sequence[Row]) -> Finding | None:
    found = _named(rows, "adapt", **PAPER_SIZE)
    if not found:
        return None
    worst = max(found, key=lambda row: row.values["hebb_over_mbpa"])
    low, high = worst.values["hebb_over_mbpa_min"], worst.values["hebb_over_mbpa_max"]
    share = worst.values["hebb_over_mbpa"]
    text = f"{100 * share:+.2g} % ({100 * low:+.2g} to {100 * high:+.2g})"
    if "hebbian" in worst.floors:
        cost = hebbian_cost(worst)
        text = f"{text}; {cost:.2g} ms a token{_above_floor(worst, 'hebbian', cost)}"
    return Finding(text, share <= HEBBIAN)


def hebbian_cost(row: Row) -> float:
    """Return the time that Hebb adds to MbPA, milliseconds a token."""
    return row.milliseconds("hebbian") - row.milliseconds("addition")


def _cache(rows: Sequence[Row], *, classes: int, window: int, wanted: float) -> Finding | None:
    found = _named(rows, "cache", vocabulary=classes, window=window)
    if not found:
        return None
    row = found[-1]
    times, difference = row.faster("cache"), row.values["difference_max"]
    text = f"{_spread(times)}; differs by {difference:.2g} nats at most"
    return Finding(text, times.median >= wanted and difference <= 1e-5)


def _currency(rows: Sequence[Row]) -> Finding | None:
    found = _named(rows, "currency")
    if not found:
        return None
    values = found[-1].values
    times = Spread(values["times"], values["times_min"], values["times_max"])
    mean, largest = values["difference_mean"], values["difference_max"]
    return Finding(
        f"{_spread(times)}; differs by {mean:.2g} nats on average, {largest:.2g} at most",
        times.median <= 1.3 and mean <= 1e-5,
    )


def _retrieval(rows: Sequence[Row]) -> Finding | None:
    found = _named(rows, "retrieve", entries=MILLION, **PAPER_SIZE)
    if not found:
        return None
    real = [row for row in _named(rows, "retrieve", entries=MILLION) if _is_real(row)]
    text = "; ".join(
        f"{row.case['source']['kind']} states, d = {row.case['dim']}: "
        f"{row.milliseconds('index'):.3g} ms, "
        f"recall {row.values['recall']:.4f}, {_spread(row.faster('index'))}"
        f"{_above_floor(row, 'index', row.milliseconds('index'))}"
        for row in (found[-1], *real[-1:])
    )
    row = found[-1]
    reached = row.milliseconds("index") <= SEARCH_MS and row.values["recall"] >= 0.99
    return Finding(text, reached and row.faster("index").median >= SEARCH_TIMES)


def _evaluation(rows: Sequence[Row]) -> Finding | None:
    found = [row for row in _named(rows, "evaluation") if is_paper_evaluation(row)]
    if not found:
        return None
    row = found[-1]
    times = Spread(*(row.values[f"times_lstm{end}"] for end in ("", "_min", "_max")))
    costs = f"{row.milliseconds('all'):.3g} against {row.milliseconds('lstm'):.3g} ms a token"
    least = _above_floor(row, "all", row.milliseconds("all"))
    return Finding(f"{_spread(times)}; {costs}{least}", times.median <= EVALUATION)


def is_paper_evaluation(row: Row) -> bool:
    """Return whether an evaluation is of the sizes that the goal is about."""
    return bool(row.case["entries"] == 100_000 and row.case["architecture"]["hidden_dim"] >= 1150)


def _network(rows: Sequence[Row]) -> Finding | None:
    found = [row for row in _named(rows, "network", k=50) if row.case["hidden"] >= 1000]
    if not found:
        return None
    worst = min(found, key=lambda row: row.faster("dual").median)
    difference = max(row.values["difference_max"] for row in found)
    text = "; ".join(
        f"S = {row.case['steps']}: {_spread(row.faster('dual'))}, one query at a time "
        f"{_spread(row.faster('single'))}{_above_floor(row, 'dual', row.milliseconds('dual'))}"
        for row in found
    )
    return Finding(
        f"{text}; differs by {difference:.2g} at most", worst.faster("dual").median >= NETWORK
    )


def _peak(rows: Sequence[Row]) -> Finding | None:
    found = [
        row
        for row in _named(rows, "evaluation")
        if row.case["entries"] >= WT2_ENTRIES and row.case["vocabulary"] >= WT2_CLASSES
    ]
    if not found:
        return None
    peak = max(row.values["peak_bytes"] for row in found) / 2**30
    return Finding(f"{peak:.2f} GiB", peak <= 8)


def _flat(rows: Sequence[Row]) -> Finding | None:
    found = _named(rows, "stream")
    if not found:
        return None
    row = found[-1]
    growth = row.values["last_over_first"]
    return Finding(
        f"{growth:.3g}x from the first to the last part of {row.case['tokens']:,} tokens",
        growth <= FLAT,
    )


def _growth(rows: Sequence[Row], timing: str) -> Finding | None:
    """Return how a cost grows with the entries of rows that differ in nothing else."""
    cost = {float(row.case["entries"]): row.milliseconds(timing) for row in rows}
    if len(cost) < 2:
        return None
    power = exponent(cost)
    return Finding(f"entries^{power:.2f} from {min(cost):,.0f} to {max(cost):,.0f}", power < 1)


def _retrieval_growth(rows: Sequence[Row]) -> Finding | None:
    return _growth([row for row in _named(rows, "retrieve") if not _is_real(row)], "index")


def _evaluation_growth(rows: Sequence[Row]) -> Finding | None:
    return _growth(of_one_vocabulary(_named(rows, "evaluation")), "all")


def _linear(rows: Sequence[Row]) -> Finding | None:
    found = [row for row in _named(rows, "neighbors") if "exponent" in row.values]
    if not found:
        return None
    row = found[-1]
    sizes = sorted(int(name) for name in row.timings)
    power = row.values["exponent"]
    return Finding(f"K^{power:.2f} from {sizes[0]} to {sizes[-1]}", power <= LINEAR)
