"""Serve one model in a process, to whoever connects."""

import asyncio
import gc
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Optional

import gluon_edbatch as edb

from .models import MODELS, Model
from .systems import Window, throughput_of_engine, throughput_together
from .wire import Configuration, answer

__all__ = ['serve']


def serve(name: str, path: Path, data: Optional[str]) -> None:
    """Serve at a socket of this machine until standard input ends."""
    model = MODELS[name](data)
    for _ in range(6):
        throughput_together(model, 0.0)
        model.together(model.samples[:1])
    asyncio.run(_serve(model, path))


async def _serve(model: Model, path: Path) -> None:
    engine = edb.serving.Engine(model.predict, warm_up=model.samples[:64])
    loop = asyncio.get_running_loop()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        configuration = Configuration(**json.loads(await reader.readline()))
        if configuration.system in ('engine', 'window'):
            await _answer(model, engine, configuration, reader, writer)
        else:
            found = await loop.run_in_executor(None, _measured, model, engine, configuration)
            writer.write(json.dumps(found).encode() + b'\n')
        writer.close()

    async with engine:
        gc.collect()
        gc.freeze()
        server = await asyncio.start_unix_server(connected, path)
        print('ready', flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()


async def _answer(
    model: Model, engine: edb.serving.Engine, configuration: Configuration, reader: Any, writer: Any
) -> None:
    if configuration.system == 'engine':
        submit = partial(engine.submit, deadline=configuration.deadline)
        await answer(submit, model.samples, reader, writer)
        return
    with Window(model.together, configuration.window / 1e3, configuration.size) as window:
        await answer(window.submit, model.samples, reader, writer)


def _measured(model: Model, engine: edb.serving.Engine, configuration: Configuration) -> float:
    seconds = configuration.seconds
    clock = time.process_time if configuration.system.endswith('cpu') else time.perf_counter
    if configuration.system in ('offline', 'offline-cpu'):
        return throughput_together(model, seconds, configuration.size, clock)
    if configuration.system == 'memory':
        with open(f'/proc/{os.getpid()}/statm', encoding='ascii') as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6
    return throughput_of_engine(engine, model.samples, seconds, clock)
