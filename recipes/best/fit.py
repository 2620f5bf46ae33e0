"""Fits the weights that the gate of ``best`` starts from, on validation text, and writes the module that ships them.

Of each text it notes, token by token, the losses of the components and the features of the gate, as the gate itself
learns from them, and minimises the mean loss of their mixture with a pull to equal shares, all texts alike. With other
choices of components, it says what each choice loses on the second half of every text when it is fitted on the first.

    python recipes/best/fit.py --output-path results/best-fit
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.best import FEATURES, PAIR, Best, BestConfig, best_rule
from hebblm.adapt.methods.cache import Cache, CacheConfig
from hebblm.adapt.methods.hebb import hebb_rule
from hebblm.adapt.methods.knn import KnnConfig, KnnLM
from hebblm.adapt.methods.mbpa import Mbpa, MbpaConfig
from hebblm.adapt.methods.mixture import Mixture, MixtureConfig
from hebblm.adapt.methods.rule import Rule
from hebblm.adapt.settings import MethodSettings
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import atomic_path, write_json
from hebblm.provenance import command_line, provenance

SCHEMA = "hebblm-best-choice/1"
TEXTS = {
    "ptb": ({"intra_domain": "ptb"}, False),
    "wt2": ({"intra_domain": "wt2"}, False),
    "wt2-to-ptb": ({"cross_domain": "wt2-to-ptb"}, False),
    "ptb, moving": ({"intra_domain": "ptb"}, True),
    "wt2-to-ptb, moving": ({"cross_domain": "wt2-to-ptb"}, True),
}
PULL = 1e-3  # times half the square of the weights
OLD = (500, 3785)  # tokens: the window of the cache, and that of the frequencies, that were components once
WINDOWS = (300, *OLD, 2000, 5000, 20_000)
MODULE = Path(__file__).parents[2] / "hebblm" / "adapt" / "methods" / "best.py"


@dataclass(frozen=True, slots=True)
class Noted:
    """An observer that notes what a gate learns from."""

    rule: Best  # whose evidence it is
    rows: list[Tensor] = field(default_factory=list)  # of each mini-batch, (N, C + F)

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note a mini-batch."""
        self.rows.append(self.rule.evidence(batch, targets))


def components(settings: MethodSettings) -> dict[str, Rule]:
    """Return everything that was tried as a component, by name."""
    settings, base, (flat, sharp) = settings.replaced(replace(settings[MbpaConfig], weight=1.0)), Unadapted(), PAIR
    found: dict[str, Rule] = {"base": base, "mbpa": Mbpa(settings[MbpaConfig]), "hebb": hebb_rule(settings)}
    for name, value in (("flat", flat), ("sharp", sharp)):
        found |= {f"cache {name} {size}": Cache(CacheConfig(size, value, 1.0), base) for size in WINDOWS}
        found[f"mixture {name}"] = Mixture(MixtureConfig(value, 1.0))
        found[f"knn at {value:g}"] = KnnLM(KnnConfig(value, 1.0))
    found["frequency"] = Cache(CacheConfig(OLD[1], 0.0, 1.0), base)
    return found


def choices() -> dict[str, list[str]]:
    """Return the components of each choice, by its name in the table; the first is what ships."""

    def caches(*sizes: int) -> list[str]:
        return [f"cache {name} {size}" for size in sizes for name in ("sharp", "flat")]

    rest, both = ["base", "knn at 0.6", "mbpa"], ["knn at 2", "mixture flat", "mixture sharp"]
    three = rest + caches(300, 2000, 20_000)
    return {
        "caches of 300, 2,000 and 20,000": three,
        "the same, and Hebb": [*three, "hebb"],
        "the same, and Mixture": [*three, "mixture sharp", "mixture flat"],
        "caches of 300, 2,000 and 5,000": rest + caches(300, 2000, 5000),
        "caches of 300 and 20,000": rest + caches(300, 20_000),
        "caches of 300 and 2,000": rest + caches(300, 2000),
        "caches of 500 and 5,000": rest + caches(500, 5000),
        "a cache of 2,000": rest + caches(2000),
        "a cache of 500": rest + caches(500),
        "a cache of 500, frequencies, Mixture, Hebb: as it was": [*rest, *both, "hebb", "frequency", *caches(500)],
    }


def evidence(rule: Best, named: dict[str, str], tokens: int, *, moving: bool) -> Tensor:
    """Return the evidence (T, C + F) of the first tokens of a validation text."""
    settings = Hyperparameters()
    config = ScenarioConfig(**named, split="valid", max_tokens=tokens)  # type: ignore[arg-type]
    scenario = open_scenario(config, torch.device("cpu"), {})
    base = scenario.base(settings)
    if moving:
        base = dynamic_base(scenario, settings.dynamic, gradient_statistics(scenario, settings.dynamic))  # type: ignore[assignment]
    context = scenario.context(base, scenario.memory(settings), rule.needs.window)
    noted = Noted(rule)
    evaluate(
        base,
        [context],
        {"lstm": Unadapted()},
        scenario.stream,
        scenario.vocabulary,
        Schedule(config.update_every, read_ahead=not base.moving),
        Hooks([noted]),
    )
    return torch.cat(noted.rows)


def fitted(texts: list[Tensor], parts: int) -> Tensor:
    """Return W (C, F), where the mean loss of the mixture over all texts and the pull are least."""
    weights = torch.zeros(parts, len(FEATURES), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-8)

    def objective() -> Tensor:
        search.zero_grad()
        total = PULL / 2 * weights.square().sum()
        for rows in texts:
            total = total + mean_loss(rows, weights) / len(texts)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(objective)  # type: ignore[no-untyped-call]
    return weights.detach()


def mean_loss(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the mean loss of the mixture, nats, from evidence (T, C + F) and W (C, F)."""
    losses, features = rows[:, : len(weights)], rows[:, len(weights) :]
    return F.gated_losses(losses, (features @ weights.t()).log_softmax(1)).mean()


def learned(rows: Tensor, weights: Tensor, every: int) -> Tensor:
    """Return the losses (T,) of a gate that goes on learning ``every`` so many tokens, from evidence and W (C, F)."""
    gate, found = F.LearnedGate(weights, BestConfig().lr), []
    for part in torch.split(rows, every):
        losses, features = part[:, : len(weights)], part[:, len(weights) :]
        found.append(F.gated_losses(losses, (features @ gate.weights.t()).log_softmax(1)))
        gate = gate.after(part.tolist())
    return torch.cat(found)


def second_halves(texts: dict[str, Tensor]) -> list[float]:
    """Return the mean loss on the second half of each text, nats, fitted on the first halves of all."""
    halves = [len(rows) // 2 for rows in texts.values()]
    parts = next(iter(texts.values())).shape[1] - len(FEATURES)
    weights = fitted([rows[:half] for rows, half in zip(texts.values(), halves, strict=True)], parts)
    found = []
    for rows, half in zip(texts.values(), halves, strict=True):
        found.append(float(learned(rows, weights, ScenarioConfig().update_every)[half:].mean()))
    return found


def written(module: str, weights: dict[str, list[float]], tokens: int) -> str:
    """Return the text of the module that ships the weights, with others in their place."""
    rows = "".join(f'    "{name}": ({", ".join(map(str, row))}),\n' for name, row in weights.items())
    head = f"# Fitted on the first {tokens:,} validation tokens each of {'; '.join(TEXTS)}.\nWEIGHTS: "
    before, _, rest = module.partition("# Fitted on")
    kept = rest[rest.index("\n}\n") + 3 :]
    return f"{before}{head}dict[str, tuple[float, ...]] = {{\n{rows}}}\n{kept}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=15_000, help="of each validation text")
    parser.add_argument("--output-path", type=Path, required=True, help="folder for what each choice loses")
    asked = parser.parse_args(arguments)
    settings = Hyperparameters()
    by = provenance(command_line("recipes/best/fit.py", arguments), device="cpu", seed=ScenarioConfig().seed)
    every, rule = components(settings.methods), best_rule(settings.methods)
    assert isinstance(rule, Best)
    probe = Best(rule.config, tuple(every.items()))
    found = {}
    for name, (named, moving) in TEXTS.items():
        found[name] = evidence(probe, named, asked.tokens, moving=moving)
        print(f"{name}: {len(found[name]):,} tokens", flush=True)

    def of(rules: list[str]) -> dict[str, Tensor]:
        columns = [*map(list(every).index, rules), *range(len(every), len(every) + len(FEATURES))]
        return {name: rows[:, columns] for name, rows in found.items()}

    losses = {label: second_halves(of(rules)) for label, rules in choices().items()}
    document = {"schema": SCHEMA, "texts": list(TEXTS), "tokens": asked.tokens, "nll": losses, "provenance": by}
    write_json(asked.output_path / "choice.json", document)
    own = {rule: name for name, rule in every.items()}
    texts = of([own[part] for _, part in rule.rules])
    weights = fitted(list(texts.values()), len(rule.rules))
    for name, rows in texts.items():
        print(f"{name}: {mean_loss(rows, weights):.4f} nats")
    table = {name: [round(x, 3) for x in row] for (name, _), row in zip(rule.rules, weights.tolist(), strict=True)}
    with atomic_path(MODULE) as temporary:
        temporary.write_text(written(MODULE.read_text(), table, asked.tokens))


if __name__ == "__main__":
    main()
