"""`python -m pykittens.cli`: the command line of a package that is not installed."""

import sys

from pykittens.cli import main

sys.exit(main())
