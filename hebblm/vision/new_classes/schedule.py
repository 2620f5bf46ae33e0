"""Learning rates of pre-training."""

from __future__ import annotations

import math

from hebblm.vision.new_classes.settings import PretrainingSettings

WARM_UP = 0.25  # share of onecycle's steps in which the rate rises
START = 0.04  # of the peak, where onecycle begins


def rate_at(settings: PretrainingSettings, epoch: int, step: int, steps: int) -> float:
    """Return the learning rate of a step.

    Args:
        settings: phases and schedule.
        epoch: counted from 0 over all phases.
        step: within the epoch, counted from 0.
        steps: of an epoch.
    """
    if settings.schedule == "steps":
        for epochs, lr in zip(settings.epochs, settings.lr, strict=True):
            if epoch < epochs:
                return lr
            epoch -= epochs
        raise ValueError(f"epoch {epoch} is beyond the last phase")
    done = (epoch * steps + step) / (settings.epochs[0] * steps)
    peak = settings.lr[0]
    if done < WARM_UP:
        return peak * (START + (1 - START) * done / WARM_UP)
    return peak / 2 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))
