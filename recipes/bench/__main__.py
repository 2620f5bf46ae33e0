"""Entry point of ``python -m recipes.bench``."""

from __future__ import annotations

import sys

from recipes.bench.command import main

sys.exit(main())
