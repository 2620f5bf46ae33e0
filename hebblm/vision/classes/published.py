"""The paper's numbers on new classes, in per cent (Mi, Lin and Faltings, IJCAI 2021)."""

from __future__ import annotations

from hebblm.vision.classes.methods import METHODS

# Table "cifar-incre": epochs 1, 3, 10 (its caption says 5, its header 10).
INCREMENTAL_EPOCHS = (1, 3, 10)
_INCREMENTAL = {
    "ResnetV1": {
        "overall": (
            (36.10, 41.38, 47.45),
            (38.62, 43.06, 47.74),
            (38.04, 45.58, 48.76),
            (39.04, 47.16, 49.69),
        ),
        "new": ((2.03, 19.15, 31.67), (7.08, 22.83, 32.05), (7.01, 27.96, 36.89), (10.26, 31.92, 39.01)),
    },
    "Densenet": {
        "overall": (
            (34.48, 40.05, 45.14),
            (36.11, 41.74, 45.57),
            (36.25, 43.90, 47.53),
            (37.07, 45.80, 48.02),
        ),
        "new": ((1.63, 17.65, 29.94), (6.45, 21.06, 30.01), (6.55, 27.01, 35.92), (9.75, 30.23, 38.10)),
    },
    "MobilenetV2": {
        "overall": (
            (35.12, 40.64, 45.73),
            (35.72, 41.85, 45.95),
            (36.90, 43.51, 48.26),
            (37.72, 45.85, 48.69),
        ),
        "new": ((2.01, 18.05, 29.17), (6.95, 22.60, 30.85), (6.85, 27.40, 36.39), (10.02, 31.45, 38.70)),
    },
}
# Table "cifar-online": new, old, overall.
_ONLINE = {
    "ResnetV1": ((35.82, 73.16, 54.49), (36.34, 73.68, 54.91), (38.56, 73.56, 56.06), (41.46, 73.16, 57.31)),
    "Densenet": ((33.18, 72.58, 52.88), (33.04, 72.94, 52.99), (34.42, 72.39, 53.33), (37.08, 72.18, 54.38)),
    "MobilenetV2": (
        (34.12, 70.24, 52.18),
        (34.64, 70.38, 52.42),
        (35.54, 69.74, 52.64),
        (38.16, 69.32, 53.74),
    ),
}
# Table "pretrain": overall, with ResnetV1.
_PRETRAIN = {
    30: (40.97, 41.47, 43.50, 45.66),
    50: (54.49, 54.91, 56.06, 57.31),
    70: (66.42, 66.74, 67.39, 68.37),
}
# Table "time": seconds.
_SECONDS = {
    "ResnetV1": (45.5, 51.4, 65.5, 67.7),
    "Densenet": (40.3, 44.5, 56.8, 59.5),
    "MobilenetV2": (35.5, 40.7, 52.5, 54.7),
}
# Table "ablation": new, old, overall, with ResnetV1.
_ABLATION = {
    "mbpa": (38.56, 73.56, 56.06),
    "hebb-v1": (39.58, 71.04, 55.31),
    "hebb-v2": (40.02, 72.64, 56.33),
    "hebb-v3": (40.66, 72.84, 56.75),
    "hebb-250": (39.91, 72.31, 56.11),
    "hebb-500": (40.20, 72.45, 56.40),
    "hebb": (41.46, 73.16, 57.31),
}
KEYS = ("new", "old", "overall")


def incremental(family: str | None, method: str, epoch: int, key: str) -> float | None:
    """Return the accuracy that the paper prints, or None where it prints none."""
    if family is None or epoch not in INCREMENTAL_EPOCHS or key not in _INCREMENTAL[family]:
        return None
    return _INCREMENTAL[family][key][METHODS.index(method)][INCREMENTAL_EPOCHS.index(epoch)]


def online(family: str | None, method: str, key: str) -> float | None:
    """Return the accuracy with 50 old classes, or None."""
    return None if family is None else _ONLINE[family][METHODS.index(method)][KEYS.index(key)]


def pretrain(family: str | None, method: str, old_classes: int) -> float | None:
    """Return the overall accuracy by the number of old classes, or None."""
    if family != "ResnetV1" or old_classes not in _PRETRAIN:
        return None
    return _PRETRAIN[old_classes][METHODS.index(method)]


def seconds_ratio(family: str | None, method: str) -> float | None:
    """Return the time as a ratio to Parametric's, or None."""
    if family is None:
        return None
    return _SECONDS[family][METHODS.index(method)] / _SECONDS[family][0]


def ablation(family: str | None, method: str, key: str) -> float | None:
    """Return the accuracy of a simplified version, or None."""
    if family != "ResnetV1" or method not in _ABLATION:
        return None
    return _ABLATION[method][KEYS.index(key)]
