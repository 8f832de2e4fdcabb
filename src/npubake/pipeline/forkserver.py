"""Pipeline: the process that forks workers: imports heavy libraries once, then one fork a task. Descriptors in.

A request is one byte on the socket with three descriptors: the specification, the pipe for events, the file for what a
stage prints. When a worker has ended, ``exit`` with its wait status is written to its pipe. When the socket closes, the
build is gone: this process ends, and the kernel ends its workers (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys

from npubake.pipeline.machine import machine
from npubake.pipeline.worker import Event, Specification, execute

_PR_SET_PDEATHSIG = 1


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side closes."""
    machine()  # read once, not by each worker
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    pipes: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if woken in ready:
                os.read(woken, 4096)
                _reap(pipes)
            if connection.fileno() in ready:
                data, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
                if not data:
                    _end(pipes)
                    return
                pid, pipe = _fork(connection, descriptors)
                pipes[pid] = pipe


def _reap(pipes: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            pipe = pipes.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, json.dumps({"event": "exit", "status": status}).encode() + b"\n")
            os.close(pipe)


def _end(pipes: dict[int, int]) -> None:
    """End all workers and see them gone, so that nothing of the build is at work when the pool has closed."""
    for pid in pipes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # with what the stage started
    for pid in pipes:
        os.waitpid(pid, 0)


def _fork(connection: socket.socket, descriptors: list[int]) -> tuple[int, int]:
    text, pipe, log = descriptors
    with os.fdopen(text, "rb") as stream:
        specification = Specification.from_json(stream.read())
    for module in specification.preload:
        with contextlib.suppress(ImportError):  # only a head start: the stage's own import tells what is missing
            importlib.import_module(module)
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.close()
        _be_worker(specification, server, pipe, log)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # by both, so that neither need wait for the other
    os.close(log)
    return pid, pipe


def _be_worker(specification: Specification, server: int, pipe: int, log: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)
    os.setpgid(0, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.set_inheritable(pipe, False)

    def send(event: Event) -> None:
        data = json.dumps(event).encode() + b"\n"
        while data:
            data = data[os.write(pipe, data) :]

    status = 1
    try:
        execute(specification, send)
        sys.stdout.flush()
        sys.stderr.flush()
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
