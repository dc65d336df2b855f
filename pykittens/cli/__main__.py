"""`python -m pykittens.cli`: the command line where the package is not installed."""

import sys

from pykittens.cli import main

sys.exit(main())
