"""What the measurement of adaptation can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hebblm.adapt import MbpaConfig
from hebblm.bench.settings import StatesConfig, each_at_least
from hebblm.errors import UserError
from hebblm.suggest import unknown

if TYPE_CHECKING:
    from hebblm.bench.source import Source

HEADS = {"gpt2": (50_257, 768), "llama-3-8b": (128_256, 4096), "gemma-2-9b": (256_000, 3584)}
"""Classes V and width D of the softmax layers of well-known models."""
WINDOWS = (500, 3785)  # published for Penn Treebank and WikiText-2


@dataclass(frozen=True)
class AdaptConfig(StatesConfig):
    """Cost and error of adaptation.

    Args:
        dim: width of the synthetic states, D.
        vocabulary: classes of the synthetic heads, V.
        steps: gradient steps S.
        lr: learning rate for each number of steps, relative to curvature; by default that of mbpa.
        neighbors: further K whose cost is measured.
        windows: of the cache, one for each vocabulary.
        entries: of the memory that is searched.
        naive_tokens: tokens of the plain form in a round.
        exact_tokens: tokens of the exact form in a round.
        error_tokens: tokens on which the fast form is compared with the exact one.
        heads: large softmax layers with random weights, by name; 16 GB of memory are enough for all.
        network_hidden: units of the network that is adapted as a whole, 784 pixels before them and 10 classes behind.
        network_entries: pictures that its memory holds.
        network_neighbors: K of its queries.
        network_steps: its gradient steps.
    """

    dim: int = 400
    vocabulary: list[int] = field(default_factory=lambda: [10_000, 33_278], metadata={"nargs": "+"})
    steps: list[int] = field(default_factory=lambda: [1, 5], metadata={"nargs": "+"})
    lr: list[float] = field(default_factory=list, metadata={"nargs": "+"})
    neighbors: list[int] = field(default_factory=lambda: [50, 100, 400], metadata={"nargs": "+"})
    windows: list[int] = field(default_factory=lambda: list(WINDOWS), metadata={"nargs": "+"})
    entries: int = 20_000
    naive_tokens: int = 2
    exact_tokens: int = 10
    error_tokens: int = 100
    heads: list[str] = field(default_factory=lambda: list(HEADS), metadata={"nargs": "*"})
    network_hidden: int = 1000
    network_entries: int = 1000
    network_neighbors: int = 50
    network_steps: list[int] = field(default_factory=lambda: [1, 5], metadata={"nargs": "+"})

    def __post_init__(self) -> None:
        super().__post_init__()
        tokens = {name: getattr(self, name) for name in ("naive_tokens", "exact_tokens", "error_tokens")}
        each_at_least(1, dim=self.dim, vocabulary=self.vocabulary, steps=self.steps, **tokens)
        each_at_least(1, neighbors=self.neighbors, windows=self.windows, entries=self.entries)
        each_at_least(1, network_hidden=self.network_hidden, network_neighbors=self.network_neighbors)
        each_at_least(1, network_entries=self.network_entries, network_steps=self.network_steps)
        for name, count in tokens.items():
            if name != "error_tokens" and count > self.batch:
                raise UserError(f"{name} = {count} exceeds batch = {self.batch}")
        for name in self.heads:
            if name not in HEADS:
                raise unknown("head", name, HEADS, f"choose {', '.join(HEADS)}")
        if self.lr and len(self.lr) != len(self.steps):
            raise UserError(
                f"lr has {len(self.lr)} values for {len(self.steps)} numbers of steps; give one each"
            )
        if len(self.windows) != len(self.vocabulary):
            raise UserError(
                f"windows has {len(self.windows)} values for {len(self.vocabulary)} vocabularies; give one each"
            )

    def rates(self) -> list[float]:
        """Return the learning rate for each number of steps."""
        return self.lr or [MbpaConfig().lr] * len(self.steps)


def case_of(config: AdaptConfig, source: Source, **more: Any) -> dict[str, Any]:
    """Return what a row records about its case."""
    classes, dim = source.head.weight.shape
    return {
        "vocabulary": classes,
        "dim": dim,
        "k": config.k,
        "batch": config.batch,
        **more,
        "source": source.describe(),
    }
