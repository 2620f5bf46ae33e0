"""Fits the weights that the gate of ``best`` starts from, on validation text, and writes them to
its module.

Of each text it notes, token by token, the losses of the components and the features of the gate, as
the gate itself learns from them, and minimises the mean loss of their mixture with a pull to equal
shares, all texts alike. Models and texts of your own can be added: the shipped weights have a
pretrained model's among them.

    python recipes/best/fit.py --output-path results/best-fit --model FOLDER --text docs.txt
    code.txt
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.block import STEP
from hebblm.adapt.methods.base import Unadapted
from hebblm.adapt.methods.best import FEATURES, WEIGHTS, best_predictor
from hebblm.adapt.methods.gate import Gated
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import Hooks, Schedule, evaluate
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.io.files import atomic_path, write_json
from hebblm.io.provenance import command_line, provenance

SCHEMA = "hebblm-best-fit/1"
TEXTS = {
    "ptb": {"intra_domain": "ptb", "split": "valid"},
    "wt2-to-ptb": {"cross_domain": "wt2-to-ptb", "split": "valid"},
    "ptb by the shipped Llama": {"model": "llama-wt2-small", "target": "ptb", "split": "valid"},
}
PULL = 3e-4  # times half the square of the weights
MODULE = Path(__file__).parents[2] / "hebblm" / "adapt" / "methods" / "best.py"


@dataclass(frozen=True, slots=True)
class Noted:
    """An observer that notes what a gate learns from."""

    predictor: Gated  # whose evidence it is
    rows: list[Tensor] = field(default_factory=list)  # of each mini-batch, (N, C + F)

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note a mini-batch."""
        self.rows.append(self.predictor.evidence(batch, targets))


def evidence(predictor: Gated, named: dict[str, str], tokens: int) -> Tensor:
    """Return the evidence (T, C + F) of the first tokens of a text."""
    settings = Hyperparameters()
    config = ScenarioConfig(**named, max_tokens=tokens)  # type: ignore[arg-type]
    scenario = open_scenario(config, torch.device("cpu"), {})
    base = scenario.base(settings)
    context = scenario.context(base, scenario.memory(settings), predictor.requirements.window)
    context.learn_mixture_weights([predictor])
    if scenario.config.memory_content != "test":
        scenario.count_training([context])
    noted, predictors, schedule = (
        Noted(predictor),
        {"lstm": Unadapted()},
        Schedule(config.update_every, read_ahead=True),
    )
    evaluate(
        base, [context], predictors, scenario.stream, scenario.vocabulary, schedule, Hooks([noted])
    )
    return torch.cat(noted.rows)


def fitted(texts: list[Tensor], parts: int) -> Tensor:
    """Return W (C, F), where the mean loss of the mixture over all texts and the pull are least."""
    weights = torch.zeros(parts, texts[0].shape[1] - parts, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [weights], max_iter=500, line_search_fn="strong_wolfe", tolerance_grad=1e-8
    )

    def objective() -> Tensor:
        search.zero_grad()
        total = PULL / 2 * weights.square().sum()
        for rows in texts:
            losses, features = rows[:, :parts], rows[:, parts:]
            total = total + F.gated_losses(
                losses, (features @ weights.t()).log_softmax(1)
            ).mean() / len(texts)
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(objective)  # type: ignore[no-untyped-call]
    return weights.detach()


def learned(rows: Tensor, weights: Tensor, predictor: Gated) -> float:
    """Return the mean loss of a gate that starts from W (C, F) and goes on learning, nats."""
    gate, losses, parts = F.LearnedGate(weights, predictor.lr, predictor.anchor), [], len(weights)
    for part in torch.split(rows, STEP):
        losses.append(F.gated_losses(part[:, :parts], gate.log_mixture_weights(part[:, parts:])))
        gate = gate.after(part.tolist())
    return float(torch.cat(losses).mean())


def written(module: str, weights: np.ndarray, tokens: int, texts: list[str]) -> str:
    """Return the text of the module that ships the weights, with others in their place."""
    table = []
    for name, row in zip(WEIGHTS, np.round(weights, 3) + 0.0, strict=True):
        first, last = (
            ", ".join(f"{x:g}" for x in half)
            for half in (row[: len(FEATURES)], row[len(FEATURES) :])
        )
        table.append(f'    "{name}": (\n        {first},\n        {last},\n    ),\n')
    head = (
        f"# Fitted on the first {tokens:,} tokens each of {'; '.join(texts)}.\n# fmt: "
        "off\nWEIGHTS: "
    )
    before, _, rest = module.partition("# Fitted on")
    kept = rest[rest.index("# fmt: on\n") :]
    return f"{before}{head}dict[str, tuple[float, ...]] = {{\n{''.join(table)}}}\n{kept}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=int, default=10_000, help="of each text")
    parser.add_argument(
        "--model", type=Path, help="folder of a model of transformers that reads texts of yours too"
    )
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="these texts")
    parser.add_argument(
        "--output-path", type=Path, required=True, help="folder for what each text loses"
    )
    asked = parser.parse_args(arguments)
    by = provenance(
        command_line("recipes/best/fit.py", arguments), device="cpu", seed=ScenarioConfig().seed
    )
    predictor = best_predictor(Hyperparameters().methods)
    assert isinstance(predictor, Gated)
    more = {
        f"{path.stem} by {asked.model.name}": {"model": str(asked.model), "target": f"text:{path}"}
        for path in asked.text
    }
    texts = {}
    for name, named in {**TEXTS, **more}.items():
        texts[name] = evidence(predictor, named, asked.tokens)
        print(f"{name}: {len(texts[name]):,} tokens", flush=True)
    parts = len(predictor.predictors)
    weights, nll = fitted(list(texts.values()), parts), {}
    for name, rows in texts.items():
        # which never saw this text
        others = fitted([other for key, other in texts.items() if key != name], parts)
        equal = learned(rows, torch.zeros_like(weights), predictor)
        nll[name] = {
            "fitted": learned(rows, weights, predictor),
            "on the others": learned(rows, others, predictor),
            "equal": equal,
        }
        print(name, {start: round(loss, 4) for start, loss in nll[name].items()}, flush=True)
    write_json(
        asked.output_path / "fit.json",
        {"schema": SCHEMA, "tokens": asked.tokens, "nll": nll, "provenance": by},
    )
    with atomic_path(MODULE) as temporary:
        temporary.write_text(
            written(MODULE.read_text(), weights.numpy(), asked.tokens, list(texts))
        )


if __name__ == "__main__":
    main()
