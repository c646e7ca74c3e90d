"""`headrace serve`: in one process, or with front ends in processes of their own."""

from __future__ import annotations

import asyncio

from .config import ServeConfig
from .images.gpu_preprocessing import check_gpu_decoding
from .models.kept_routes import kept_routes
from .models.repository import ModelRepository
from .models.scan import foreign_models
from .ready_file import report


def serve(config: ServeConfig) -> None:
    """Serve a models folder until SIGTERM or SIGINT, then answer what was accepted and return. A second signal ends at once.

    Ports are taken before anything is loaded, so that one in use fails immediately. Progress and the addresses go to stdout.
    Raises ArtifactError when no model can be served, BackendError when images cannot be decoded on a GPU as they should be, and
    HeadraceError when a port is taken or a process ends while it starts.
    """
    if config.front_ends and config.processes.frontends is None and (foreign := foreign_models(config.models)):
        report(f"one process serves all models, since {foreign[0]} is not Headrace's own and may have tensors of any size")
        config = config.changed(frontends=0)
    repository = ModelRepository(config)
    if (kept := kept_routes(config)) is not None:
        for path, model in kept.served:
            report(f"POST {path} is answered by {model} as the application did that it was migrated from")
    if config.images.decoding == "gpu":
        check_gpu_decoding(config.decoding_gpu)
    if config.front_ends:
        from .processes.supervisor import Supervisor

        # The engine has a repository of its own; this one has said whether there is anything to serve.
        asyncio.run(Supervisor(config).run())
        return
    import uvloop

    from .models.improvement import leave
    from .observe.logs import log_output
    from .processes.single import SingleProcess

    with log_output(config.observe.log_format) as log_settings, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(SingleProcess(config, repository, log_settings).run())
    leave()
