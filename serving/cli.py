"""`headrace serve`: its options, here and on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    context: typer.Context,
    models: Annotated[Path, typer.Argument(help="A model repository, as migrate and compile write it.")],
    host: Annotated[str, typer.Option(help="The address to bind.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8002,
    ready_file: Annotated[Path | None, typer.Option(help="Written as JSON with the ports once ready.")] = None,
    instances: Annotated[
        int | None, typer.Option(help="Sessions side by side per model (and GPU); by default what warm-up finds.")
    ] = None,
    devices: Annotated[
        str, typer.Option(help="GPUs for models that were planned on one, as in 0,1; all: those it sees.")
    ] = "all",
    threads: Annotated[int | None, typer.Option(help="CPU threads of each session; by default as the plan measured.")] = None,
    max_queue: Annotated[int, typer.Option(help="Requests that may wait, per model, before new ones are refused.")] = 256,
    timeout: Annotated[float, typer.Option(help="Deadline in seconds of a request that names none.")] = 30.0,
    frontends: Annotated[
        int | None,
        typer.Option(help="Processes that take requests and decode images; 0 is one process for all. By default by the cores."),
    ] = None,
    ring_mib: Annotated[int, typer.Option(help="Shared memory of each front end for requests on their way, in MiB.")] = 256,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name by which it may be called, besides localhost and addresses. Repeatable.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="TOML or JSON with lists of bearer tokens under infer, admin and metrics.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate chain; all ports then speak TLS only.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its PEM key, unencrypted.")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="Clients must show a certificate of this authority.")] = None,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Let clients on this machine pass tensors in shared memory.")
    ] = False,
    allow_settings: Annotated[
        bool, typer.Option("--allow-settings", help="Let clients change log settings over the network.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json; the log goes to stderr.")] = "text",
    access_log: Annotated[bool, typer.Option("--access-log", help="Log a line per request.")] = False,
    trace_otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send OpenTelemetry traces to this OTLP/HTTP collector, as in http://localhost:4318."),
    ] = None,
    model_control_mode: Annotated[
        str, typer.Option(help="none: fixed at the start; explicit: clients load and unload; poll: the folder is followed.")
    ] = "none",
    load_model: Annotated[
        list[str] | None, typer.Option(help="Under explicit control, loaded at the start; '*' is all. Repeatable.")
    ] = None,
    rate_limit: Annotated[
        float | None, typer.Option(help="Inference requests a second that one client may send; by default any number.")
    ] = None,
    response_cache_bytes: Annotated[
        int, typer.Option(help="Memory for outputs that are given again when the same input comes again; 0 keeps none.")
    ] = 0,
    repository_poll_secs: Annotated[float, typer.Option(help="Seconds between two looks at the folder in poll mode.")] = 15.0,
    decoding: Annotated[
        str,
        typer.Option(help="exact: as Pillow; fast: JPEG within 2 of 255; scaled: large JPEGs decoded smaller; gpu: on a GPU."),
    ] = "fast",
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster, by Ray Serve; the options below are for it.")] = False,
    ray_address: Annotated[
        str | None, typer.Option(help="The cluster; by default that of RAY_ADDRESS, or the one this machine belongs to.")
    ] = None,
    min_replicas: Annotated[int, typer.Option(help="Data planes that always run.")] = 1,
    max_replicas: Annotated[int, typer.Option(help="Data planes that run under load.")] = 4,
    cpus_per_replica: Annotated[float, typer.Option(help="Cores of a node that each takes.")] = 1.0,
    gpus_per_replica: Annotated[float, typer.Option(help="GPUs of a node that each takes.")] = 0.0,
    models_per_replica: Annotated[
        int | None, typer.Option(help="Models that each holds at a time; others wait to be asked for. By default all.")
    ] = None,
    target_requests: Annotated[int, typer.Option(help="Requests under way per replica, above which one is added.")] = 16,
    upscale_secs: Annotated[float, typer.Option(help="Seconds of such load before a replica is added.")] = 10.0,
    downscale_secs: Annotated[float, typer.Option(help="Seconds without it before one is taken away.")] = 300.0,
) -> None:
    """Serve a model repository over the Open Inference Protocol, HTTP and gRPC, until SIGTERM."""
    from .config import ServeConfig, parse_devices
    from .ray.config import RayConfig, check_options

    given = [name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    try:
        check_options(given, ray=ray)
        if ray and decoding == "gpu":
            raise ValueError("--decoding gpu does not go with --ray: replicas decode on their cores; see --cpus-per-replica")
        cluster = RayConfig(
            address=ray_address,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            cpus_per_replica=cpus_per_replica,
            gpus_per_replica=gpus_per_replica,
            models_per_replica=models_per_replica,
            target_requests=target_requests,
            upscale_seconds=upscale_secs,
            downscale_seconds=downscale_secs,
        )
        config = ServeConfig.of(
            models=models,
            host=host,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            ready_file=ready_file,
            instances=instances,
            devices=parse_devices(devices),
            threads=threads,
            max_queue=max_queue,
            default_timeout_seconds=timeout,
            frontends=frontends,
            ring_mib=ring_mib,
            allowed_hosts=tuple(allowed_host or ()),
            token_file=token_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            shared_memory=shared_memory,
            allow_settings=allow_settings,
            log_format=log_format,
            access_log=access_log,
            trace_otlp=trace_otlp,
            model_control_mode=model_control_mode,
            load_models=tuple(load_model or ()),
            repository_poll_seconds=repository_poll_secs,
            response_cache_bytes=response_cache_bytes,
            rate_limit=rate_limit,
            decoding=decoding,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if ray:
        from .ray.deploy import serve_on_ray

        serve_on_ray(config, cluster)
        return
    from .server import serve as run

    run(config)
