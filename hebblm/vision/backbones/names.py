"""Names of the backbones, known without loading torch."""

from __future__ import annotations

from hebblm.suggest import unknown

NAMES = (
    "resnet50", "densenet121", "mobilenetv2", "resnet50-w16", "densenet40-k12", "mobilenetv2-x0.5", "cnn2-w16",
)  # fmt: skip


def check_backbone(name: str) -> None:
    """Raise UserError unless ``name`` is that of a backbone."""
    if name not in NAMES:
        raise unknown("backbone", name, NAMES, f"choose from {', '.join(NAMES)}")
