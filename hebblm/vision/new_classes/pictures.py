"""Pictures on a device, scaled as a network wants them, cropped and mirrored."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hebblm.vision.data.images import Images

PLANES = 3


@dataclass(frozen=True, slots=True)
class Pictures:
    """Labelled pictures as bytes on the device where a network reads them.

    Args:
        pixels: (N, C, H, W) uint8; a single plane stands for three equal ones.
        labels: (N,) int64.
        mean: (3,) brightness of each plane that becomes 0.
        deviation: (3,) brightness above it that becomes 1.
    """

    pixels: Tensor
    labels: Tensor
    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, images: Images, mean: Tensor, deviation: Tensor, device: torch.device) -> Pictures:
        """Return pictures on a device."""
        return cls(images.pixels.to(device), images.labels.to(device), mean.to(device), deviation.to(device))

    def batch(self, index: Tensor) -> Tensor:
        """Return the pictures at ``index`` (n,) as (n, 3, H, W) float32, channels last."""
        return self._scaled(self.pixels[index.to(self.pixels.device)])

    def varied(self, index: Tensor, generator: torch.Generator, *, padding: int, flip: bool) -> Tensor:
        """Return the same, each cropped at random out of a black frame and half of them mirrored.

        Args:
            index: (n,) int64.
            generator: on the CPU, so that every device sees the same pictures.
            padding: width of the frame.
            flip: whether any is mirrored.
        """
        n, (height, width) = len(index), self.pixels.shape[2:]
        rows = torch.randint(2 * padding + 1, (n, 1), generator=generator) + torch.arange(height)  # (n, H)
        columns = torch.randint(2 * padding + 1, (n, 1), generator=generator) + torch.arange(width)  # (n, W)
        if flip:
            mirrored = torch.rand(n, 1, generator=generator) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        device = self.pixels.device
        framed = torch.nn.functional.pad(self.pixels[index.to(device)], (padding,) * 4)
        each = torch.arange(n, device=device).view(n, 1, 1, 1)
        planes = torch.arange(framed.shape[1], device=device).view(1, 1, 1, -1)
        # Planes last already in the gathering, so that the scaled copy is in the order that convolutions want.
        cut = framed[each, planes, rows.to(device).view(n, -1, 1, 1), columns.to(device).view(n, 1, -1, 1)]
        return self._scaled(cut.permute(0, 3, 1, 2))

    def _scaled(self, pixels: Tensor) -> Tensor:
        """Return pixels (n, C, H, W) uint8 as what the network reads."""
        scaled = pixels.to(torch.float32).expand(-1, PLANES, -1, -1).contiguous(memory_format=torch.channels_last)
        return scaled.sub_(self.mean.view(-1, 1, 1)).div_(self.deviation.view(-1, 1, 1))


def statistics(images: Images, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (3,) of the brightness of each plane over the pictures at ``index``."""
    pixels = images.pixels[index].to(torch.float32).transpose(0, 1).flatten(1)  # (C, n H W)
    mean, deviation = pixels.mean(1, dtype=torch.float64), pixels.std(1)
    return (
        mean.to(torch.float32).expand(PLANES).clone(),
        deviation.clamp_min(1.0).expand(PLANES).clone(),
    )
