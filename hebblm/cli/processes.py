"""``--processes P``: a command starts itself P times, as torchrun would, and says once what became of it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

from hebblm.errors import MOST, UserError
from hebblm.ranks import THREADS, check_divided, size

ENDING = 10  # seconds that processes have to end once another one has failed
LOOK = 1.0  # seconds between two looks at whether whoever started this process is there


def check_processes(processes: int, most: int = MOST, what: str = "streams") -> None:
    """Refuse a number of processes that cannot be.

    Args:
        processes: as the command line has it.
        most: things that are divided among them, where that is known.
        what: these are, as an option names them.

    Raises:
        UserError: P below 1, other than the number that torchrun has started, or more than there are things.
    """
    if processes < 1:
        raise UserError(f"--processes {processes} must be at least 1")
    if processes not in (1, size()) and size() > 1:
        raise UserError(f"--processes {processes} differs from the {size()} that were started; leave it out")
    if max(processes, size()) > most:
        raise UserError(f"{max(processes, size())} processes are more than --{what} {most}; use as many {what} or more")


def spread(processes: int, device: str, prog: str, module: str, argv: list[str] | None) -> int | None:
    """Run a command in so many processes of this machine, unless this is one of several already.

    Args:
        processes: P, as the command line has it; 1 where torchrun has started several.
        device: that each is to use.
        prog: name of the command.
        module: that runs it.
        argv: its arguments, None for those of the process.

    Returns:
        The exit status; None where this process has the work, or its part of it, to do.

    Raises:
        UserError: all are to use one GPU.
    """
    check_divided(device, processes)
    if size() > 1:
        _end_with_parent()
        return None
    if processes == 1:
        return None
    return _launch(processes, prog, [module, *(sys.argv[1:] if argv is None else argv)])


def _launch(processes: int, prog: str, arguments: list[str]) -> int:
    """Start the processes on the loopback and wait for them; return the exit status."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # a broken connection is told by _failed
    import torch
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    if "OMP_NUM_THREADS" not in os.environ:  # else each would take every core
        threads = torch.get_num_threads()
        os.environ |= {"OMP_NUM_THREADS": str(max(1, threads // processes)), THREADS: str(threads)}
    logging.disable(logging.CRITICAL)  # what the launcher says of a rank that ends, _failed says in a line
    with tempfile.TemporaryDirectory(prefix="hebblm-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=f"hebblm-{os.getpid()}",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            shutdown_timeout=ENDING,
        )
        try:
            elastic_launch(config, sys.executable)("-u", "-m", *arguments)
        except ChildFailedError as error:
            return _failed(prog, processes, error.failures)
        except SignalException as error:  # handed on to the ranks, of which the first has told it
            return int(128 + error.sigval)
        finally:
            logging.disable(logging.NOTSET)
    return 0


def _failed(prog: str, processes: int, failures: Mapping[int, Any]) -> int:
    """Return the exit status of a command of which some ranks failed; name one that could not speak for itself."""

    # Those still at work were ended by SIGTERM: not they, but another one is what went wrong.
    def order(item: tuple[int, Any]) -> tuple[bool, bool, int]:
        rank, failure = item
        return failure.exitcode == -signal.SIGTERM, failure.exitcode >= 0, rank

    rank, failure = min(failures.items(), key=order)
    if failure.exitcode == 2:
        return 2
    ended = f"failed with status {failure.exitcode}"
    if failure.exitcode < 0:
        ended = f"was killed by {signal.Signals(-failure.exitcode).name}"
    print(
        f"{prog}: error: rank {rank} of {processes} (process {failure.pid}) {ended}; the others were ended, "
        "what was finished is kept",
        file=sys.stderr,
    )
    return 1


def _end_with_parent() -> None:
    """End this process soon after the one that started it, which was killed if it did not end this one itself."""
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
