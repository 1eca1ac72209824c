"""`python -m semel.chaos`: the run of `semel.chaos.run`, without the rest of the command line."""

import sys

from semel.chaos.run import main

sys.exit(main())
