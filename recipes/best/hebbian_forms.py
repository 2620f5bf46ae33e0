"""Forms of the Hebbian term over MbPA's optimum, on validation text: which gains on new words without a price?

With p MbPA's distribution, m_i the share of the neighbours' closeness that carries label i, n_i its count and
E_i = (1 - beta) / (1 - beta^n_i), a form adds to the logit of label i:

    bump      log(1 + kappa m_i / p_i)
    counted   E_i log(1 + kappa m_i / p_i)      count-gated
    inside    log(1 + kappa E_i m_i / p_i)      the count within the logarithm
    printed   E_i (eta D_i . h - delta_i)       Hebb as it stands, eta in nats

each on new classes alone and on all. A bump on all classes is p + kappa m, normalised: a mixture of MbPA and the
neighbours' labels, with the share kappa / (1 + kappa).

    python recipes/best/hebbian_forms.py --text wt2-to-ptb --output-path results/best-forms
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hebblm.adapt import functional as F
from hebblm.adapt.batch import EvalBatch
from hebblm.adapt.counts import entry_counts
from hebblm.adapt.methods.hebb import HebbConfig
from hebblm.adapt.methods.lstm import Unadapted
from hebblm.adapt.methods.mbpa import MbpaConfig, adapted_logits
from hebblm.evaluation.hyperparameters import Hyperparameters
from hebblm.evaluation.loop import evaluate
from hebblm.evaluation.opening import open_scenario
from hebblm.evaluation.scenario_config import ScenarioConfig
from hebblm.files import write_json
from hebblm.provenance import command_line, provenance
from hebblm.report.buckets import occurrences_so_far
from hebblm.report.gains import Bootstrap, bootstrap_gains
from hebblm.report.methods import BASE
from hebblm.tuning.hebbian import LabelTerms

SCHEMA = "hebblm-hebbian-forms/1"
KAPPA = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
BETA = (0.5, 0.9, 0.99)
ETA = (1.0, 2.0, 4.0, 8.0, 15.0)
OFTEN = 8  # a new word counts as seen often from this occurrence on


@dataclass(frozen=True, slots=True)
class Forms:
    """An observer that notes the losses of every form at every value.

    Args:
        mbpa: of the gradient term.
        losses: by the form's name and values, of each mini-batch (N,).
    """

    mbpa: MbpaConfig
    losses: defaultdict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def watch(self, batch: EvalBatch, targets: Tensor) -> None:
        """Note the losses of a mini-batch."""
        new = batch.context.new_classes
        logits, normalizers = adapted_logits(batch, self.mbpa)
        self.losses["mbpa"].append(normalizers - logits.gather(1, targets[:, None]).squeeze(1))
        for classes in ("all",) if new is None else ("new", "all"):
            hebb = HebbConfig(classes=classes, closeness="max")  # type: ignore[arg-type]
            terms = LabelTerms.of(batch, targets, self.mbpa, hebb)
            for name, bump in self.bumps(batch, terms, normalizers, hebb):
                self.losses[f"{name}, {classes} classes"].append(lost(terms, bump))

    def bumps(
        self, batch: EvalBatch, terms: LabelTerms, normalizers: Tensor, hebb: HebbConfig
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield each form's name with its values, and what it adds (N, K) to the logit of the entries' labels."""
        near = batch.neighbors
        close = F.closeness(near.distances, near.mask, eps=self.mbpa.eps, normalization="sum", scale=self.mbpa.scale)
        same = terms.labels.unsqueeze(2) == terms.labels.unsqueeze(1)  # (N, K, K)
        mass = (same * close.unsqueeze(1)).sum(2)  # (N, K) of the label
        ratio = mass / (terms.adapted - normalizers[:, None]).exp()
        counts = entry_counts(batch, hebb, terms.labels)
        for kappa in KAPPA:
            yield f"bump, kappa {kappa:g}", (kappa * ratio).log1p()
        for beta in BETA:
            weights = F.hebb_weights(counts, beta).to(ratio.dtype)
            for kappa in KAPPA:
                yield f"counted, beta {beta:g}, kappa {kappa:g}", weights * (kappa * ratio).log1p()
                yield f"inside, beta {beta:g}, kappa {kappa:g}", (kappa * weights * ratio).log1p()
            for eta in ETA:
                yield f"printed, beta {beta:g}, eta {eta:g}", weights * (eta * terms.summed - terms.delta)


def lost(terms: LabelTerms, bump: Tensor) -> Tensor:
    """Return the losses (N,) in nats once the logits of the neighbours' labels are raised by ``bump`` (N, K)."""
    raised = terms.adapted + bump
    gained = torch.where(terms.mine, raised, -torch.inf).logsumexp(1)
    own = torch.where(terms.hit, raised, 0).sum(1)
    target = torch.where(terms.hit.any(1), own, terms.target)
    return torch.logaddexp(terms.rest, gained) - target


def best_values(nll: dict[str, np.ndarray[Any, np.dtype[np.float32]]]) -> list[str]:
    """Return of each form and range of classes the name with the values of the least loss."""
    found: dict[tuple[str, str], str] = {}
    for name in nll:
        if name != "mbpa":
            form = name.partition(",")[0], name.rpartition(", ")[2]
            if form not in found or nll[name].mean() < nll[found[form]].mean():
                found[form] = name
    return list(found.values())


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--text", required=True, help="ptb, wt2 or wt2-to-ptb")
    parser.add_argument("--max-tokens", type=int, default=6000, help="of the validation text")
    parser.add_argument("--output-path", type=Path, required=True)
    asked = parser.parse_args(arguments)
    kind = "cross_domain" if "-to-" in asked.text else "intra_domain"
    config = replace(ScenarioConfig(**{kind: asked.text}), split="valid", max_tokens=asked.max_tokens)
    by = provenance(command_line("recipes/best/hebbian_forms.py", arguments), device="cpu", seed=config.seed)
    settings = Hyperparameters()
    scenario = open_scenario(config, torch.device("cpu"), by)
    base = scenario.base(settings)
    forms = Forms(settings.methods[MbpaConfig])
    evaluate(
        base,
        [scenario.context(base, scenario.memory(settings), 0)],
        {"lstm": Unadapted()},
        scenario.stream,
        scenario.vocabulary,
        update_every=config.update_every,
        read_ahead=True,
        observers=[forms],
    )
    nll = {name: torch.cat(parts).numpy() for name, parts in forms.losses.items()}
    new, seen = scenario.stream.oov, occurrences_so_far(scenario.stream.targets)
    parts = {"all": np.ones(len(new), dtype=np.bool_)}
    if new.any():
        parts |= {"known": ~new, "new": new, f"new, seen {OFTEN} times or more": new & (seen >= OFTEN)}
    bootstrap = Bootstrap(seed=config.seed)
    gains = bootstrap_gains({BASE: nll["mbpa"], **{name: nll[name] for name in best_values(nll)}}, parts, bootstrap)
    document = {
        "schema": SCHEMA,
        "text": asked.text,
        "tokens": len(scenario.stream),
        "provenance": {**by, "data_sha256": scenario.data_sha256},
        "nll": {
            name: {part: float(losses[mask].mean(dtype=np.float64)) for part, mask in parts.items()}
            for name, losses in nll.items()
        },
        "gain_over_mbpa": {
            name: {gain.part: {"gain": gain.gain, "low": gain.low, "high": gain.high} for gain in found}
            for name, found in gains.items()
        },
        "bootstrap": asdict(bootstrap),
    }
    write_json(asked.output_path / f"forms-{asked.text}.json", document)
    for name, found in gains.items():
        print(name, [f"{gain.part} {gain.gain:+.4f} ({gain.low} {gain.high})" for gain in found])


if __name__ == "__main__":
    main()
