"""``hebblm serve``: the adapted model over HTTP, for editors, keyboards and chat clients."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hebblm.adapt.methods import METHODS, check_methods, load_plugin, unaliased
from hebblm.cli.common import command, print_line
from hebblm.errors import UserError
from hebblm.evaluation.hyperparameters import parse_settings
from hebblm.models.catalog import model_folder
from hebblm.models.device import check_device
from hebblm.runtime.extras import install

if TYPE_CHECKING:  # these load torch, and an error message must not wait for that
    from hebblm.serve.config import ServeOptions

PROG = "hebblm serve"
PACKAGES = ("starlette", "uvicorn", "sse_starlette", "prometheus_client")


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Options of the server.

    Args:
        model: name of a model that ships or is fetched, folder of a checkpoint, or a causal
            language model of transformers by hub id, folder or GGUF file.
        memory: folder where memories are kept, or of a saved reader; without it nothing is kept.
        watch: a folder of texts; new and changed files are learned, and deleted ones forgotten.
        method: method of adaptation; by default best, or that of the reader in --memory.
        plugin: Python files that register your own methods.
        set: hyper-parameters, e.g. --set hebb.beta=0.5.
        host: address that the server listens on; any other than this machine's own needs a key.
        port: its port; 0 chooses one that is free.
        api_key_file: file with the key that clients must send.
        allowed_host: further names by which clients may call the server.
        allowed_origin: pages from elsewhere, e.g. https://example.org, that may call it from a
            browser.
        name: name of the model for clients; by default that of the command.
        context: tokens of the window that a model of transformers reads in.
        device: auto, cpu, cuda, or one of several GPUs.
        dtype: type of the weights of a model of transformers.
    """

    model: Path = field(metadata={"positional": True})
    memory: Path | None = None
    watch: Path | None = None
    method: str | None = None
    plugin: list[Path] = field(default_factory=list, metadata={"nargs": "+"})
    set: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    host: str = "127.0.0.1"
    port: int = 8080
    api_key_file: Path | None = None
    allowed_host: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    allowed_origin: list[str] = field(default_factory=list, metadata={"nargs": "+"})
    name: str | None = None
    context: int | None = None
    device: str = "auto"
    dtype: str = "auto"


@command(PROG, ServeConfig, f"{PROG} smollm2-135m --memory memories --watch notes")
def main(config: ServeConfig, argv: list[str]) -> None:
    """Answer completions, suggestions and questions over HTTP, and learn from documents."""
    options = _options(config)
    from hebblm.serve.run import listen

    listening = listen(options)  # a port in use is found before a model is loaded
    try:
        _serve(config, options, listening)
    finally:
        listening.close()


def _options(config: ServeConfig) -> ServeOptions:
    """Refuse what cannot work before anything is loaded, and return how the server is reached."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(f"{PROG} needs {', '.join(missing)}; {install('serve')}")
    from hebblm.serve.config import ServeOptions, read_key

    for path in config.plugin:
        load_plugin(path)
    if config.method is not None:
        check_methods([unaliased(config.method)])
        if METHODS[unaliased(config.method)].uses_dynamic_base:
            raise UserError(
                f"method = {config.method} changes the weights of the model, which all questions "
                "share; choose one whose base stays as trained, such as best"
            )
    if config.watch is not None and not config.watch.is_dir():
        raise UserError(f"watch = {config.watch} is not a folder; name a folder of texts")
    check_device(config.device)
    model_folder(config.model)
    key = None if config.api_key_file is None else read_key(config.api_key_file)
    return ServeOptions(
        host=config.host,
        port=config.port,
        key=key,
        allowed_hosts=tuple(config.allowed_host),
        allowed_origins=tuple(config.allowed_origin),
    )


def _serve(config: ServeConfig, options: ServeOptions, listening: object) -> None:
    from hebblm.api.language_model import load
    from hebblm.serve.app import Server
    from hebblm.serve.metrics import Metrics
    from hebblm.serve.run import run
    from hebblm.serve.service import Service
    from hebblm.serve.watching import WatchedFolder
    from hebblm.serve.work import Workers

    name = config.name or config.model.name
    model = load(config.model, device=config.device, dtype=config.dtype, context=config.context)
    workers = Workers(options.limits)
    services: list[Service] = []
    metrics = Metrics(
        lambda: [
            (memory.name, memory.published.entries, len(memory.published.documents))
            for service in services
            for memory in service.memories.opened()
        ],
        lambda: workers.waiting,
    )
    service = Service(
        model,
        name,
        method=config.method,
        settings=parse_settings(config.set),
        folder=config.memory,
        limits=options.limits,
        learned=metrics.learned,
    )
    services.append(service)
    watching = None
    if config.watch is not None:
        watching = WatchedFolder(service.memory(None), config.watch)
    port = listening.getsockname()[1]  # type: ignore[attr-defined]
    host = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{host}:{port}"

    def ready() -> None:
        _tell_ready(address, name, config, options)
        if watching is not None:
            watching.start()

    def ending() -> None:
        workers.stop()
        if watching is not None:
            watching.stop()

    run(Server(service, options, metrics, workers).app(), listening, ready, ending)  # type: ignore[arg-type]
    if watching is not None:
        watching.join()
    if config.memory is not None:
        print_line(f"all that was learned is in {config.memory}")


def _tell_ready(address: str, name: str, config: ServeConfig, options: ServeOptions) -> None:
    """Print the address and an example that works."""
    key = "" if options.key is None else ' -H "Authorization: Bearer $KEY"'
    print_line(f"{name} answers at {address}")
    if config.memory is None:
        print_line("nothing is kept when it ends; add --memory FOLDER to keep what it learns")
    if options.key is not None:
        print_line("clients need the key of --api-key-file")
    print(
        f"try: curl {address}/v1/completions{key} -H 'Content-Type: application/json' "
        f'-d \'{{"model": "{name}", "prompt": "The function ", "max_tokens": 8}}\''
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
