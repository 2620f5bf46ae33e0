"""``python -m hebblm`` is the command ``hebblm``."""

import sys

from hebblm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
