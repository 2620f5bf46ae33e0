"""Entry of the study's commands: ``python -m recipes.study --help``."""

import sys

from recipes.study.command import main

sys.exit(main())
