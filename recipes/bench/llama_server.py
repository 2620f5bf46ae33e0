"""The server of llama.cpp, from the package xllamacpp, on one file of weights.

It runs in an environment of its own, where nothing but that package is installed.

Usage: python recipes/bench/llama_server.py FILE PORT THREADS
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    import xllamacpp

    file, port, threads = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.hostnames, params.port = ["127.0.0.1"], int(port)
    params.n_ctx, params.n_parallel = 2048, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
