"""Fits the weights that the gate of ``best`` starts from, on validation text, and writes the module that ships them.

Of each text it notes, token by token, the losses of the components and the features of the gate, as the gate itself
learns from them, and minimises the mean loss of their mixture with a pull to equal shares, all texts alike.

    python recipes/best/fit.py [--tokens 15000]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from hebblm.adapt import EvalBatch
from hebblm.adapt import functional as F
from hebblm.adapt.features import NAMES
from hebblm.adapt.methods.best import Best, best_rule
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import evaluate
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.passes import dynamic_base, gradient_statistics
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import atomic_path

TEXTS = {
    "ptb": ({"intra_domain": "ptb"}, False),
    "wt2": ({"intra_domain": "wt2"}, False),
    "wt2-to-ptb": ({"cross_domain": "wt2-to-ptb"}, False),
    "ptb, moving": ({"intra_domain": "ptb"}, True),
}
PULL = 1e-3  # times half the square of the weights
MODULE = Path(__file__).parents[2] / "hebblm" / "adapt" / "methods" / "best_weights.py"


@dataclass(frozen=True, slots=True)
class Noted:
    """An observer that notes what a gate learns from.

    Args:
        rule: whose evidence it is.
        rows: of each mini-batch, (N, C + F).
    """

    rule: Best
    rows: list[Tensor] = field(default_factory=list)

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note a mini-batch."""
        self.rows.append(self.rule.evidence(batch, targets))


def evidence(rule: Best, named: dict[str, str], tokens: int, *, moving: bool) -> Tensor:
    """Return the evidence (T, C + F) of the first tokens of a validation text.

    Args:
        rule: the gate's.
        named: which scenario.
        tokens: T.
        moving: read by dynamic evaluation.
    """
    settings = Hyperparameters()
    config = ScenarioConfig(**named, split="valid", max_tokens=tokens)  # type: ignore[arg-type]
    scenario = open_scenario(config, torch.device("cpu"), {})
    base, every = scenario.base(settings), config.update_every
    if moving:
        base = dynamic_base(scenario, settings.dynamic, gradient_statistics(scenario, settings.dynamic))  # type: ignore[assignment]
        every = settings.dynamic.segment
    context = scenario.context(base, scenario.memory(settings), rule.needs.window)
    noted = Noted(rule)
    evaluate(
        base,
        context,
        {"lstm": Unadapted()},
        scenario.stream,
        scenario.vocabulary,
        update_every=every,
        read_ahead=not base.moving,
        observers=[noted],
    )
    return torch.cat(noted.rows)


def fitted(texts: list[Tensor], parts: int) -> Tensor:
    """Return W (C, F), where the mean loss of the mixture over all texts and the pull are least."""
    weights = torch.zeros(parts, len(NAMES), dtype=torch.float64, requires_grad=True)
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


def written(weights: dict[str, list[float]], tokens: int) -> str:
    """Return the text of the module that ships the weights."""
    rows = "".join(f'    "{name}": ({", ".join(map(str, row))}),\n' for name, row in weights.items())
    return (
        '"""The weights that the gate of ``best`` starts from, written by recipes/best/fit.py.\n\n'
        f"Fitted on the first {tokens:,} validation tokens each of {', '.join(TEXTS)}; the columns are\n"
        ":data:`hebblm.adapt.features.NAMES`.\n"
        '"""\n\nWEIGHTS: dict[str, tuple[float, ...]] = {\n' + rows + "}\n"
    )


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=15_000, help="of each validation text")
    config = parser.parse_args()
    rule = best_rule(Hyperparameters().methods)
    assert isinstance(rule, Best)
    found = []
    for name, (named, moving) in TEXTS.items():
        found.append(evidence(rule, named, config.tokens, moving=moving))
        print(f"{name}: {len(found[-1]):,} tokens", flush=True)
    weights = fitted(found, len(rule.rules))
    for name, rows in zip(TEXTS, found, strict=True):
        print(f"{name}: {mean_loss(rows, weights):.4f} nats")
    table = {
        name: [round(x, 3) for x in row] for (name, _), row in zip(rule.rules, weights.tolist(), strict=True)
    }
    with atomic_path(MODULE) as temporary:
        temporary.write_text(written(table, config.tokens))


if __name__ == "__main__":
    main()
