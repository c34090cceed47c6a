"""One rank under torchrun.

    python -m infra.launchers.torchrun_rank LOG_FOLDER MODULE [ARGUMENTS...]

torchrun by itself lets ranks outlive an agent that is killed, and names log files by run and
attempt; both are mended here.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from infra.launchers.rank_log import redirect_output
from infra.processes import GUARDED_PROCESS, die_with_parent

if __name__ == "__main__":
    # torchrun's own process id, since it may be gone before we could ask for our parent's.
    agent = os.environ.get(GUARDED_PROCESS)
    die_with_parent(int(agent) if agent else None)
    folder, module, *arguments = sys.argv[1:]
    redirect_output(Path(folder), int(os.environ["RANK"]))
    importlib.import_module(module).main(arguments)
