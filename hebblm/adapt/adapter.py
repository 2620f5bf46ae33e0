"""An adapter: a rule that reads a context."""

from __future__ import annotations

from torch import Tensor

from hebblm.adapt.context import Context
from hebblm.adapt.methods.rule import Rule


class ContextAdapter:
    """Adapter of one rule in a context; several may share one, and with it retrieval: one of them is updated for all.

    Args:
        context: head, memory and counts.
        rule: the method.
    """

    def __init__(self, context: Context, rule: Rule) -> None:
        self.context = context
        self.rule = rule
        context.learn_shares([rule])

    def predict(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities (N, V) in nats for hidden states (N, D); changes nothing."""
        return self.rule.log_probs(self.context.batch(hidden))

    def score(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (N,) in nats of ``targets`` (N,): what gathering from :meth:`predict` gives, for less."""
        return self.rule.score(self.context.batch(hidden), targets)

    def update(self, hidden: Tensor, targets: Tensor) -> None:
        """Write scored pairs to the context."""
        self.context.observe(hidden, targets)

    def reset(self) -> None:
        """Forget everything observed."""
        self.context.reset()
