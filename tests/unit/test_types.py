from __future__ import annotations

import pytest
import torch

from hebblm.errors import UserError
from hebblm.types import OutputHead


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_softmax_layer_of_half_precision_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match="give its weights as float32"):
        OutputHead(torch.zeros(3, 2, dtype=dtype), None)
