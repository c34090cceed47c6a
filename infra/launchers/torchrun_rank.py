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
from infra.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    folder, module, *arguments = sys.argv[1:]
    redirect_output(Path(folder), int(os.environ["RANK"]))
    importlib.import_module(module).main(arguments)
