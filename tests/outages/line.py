"""A TCP line that can fall silent: it stays open, takes what is sent, and brings nothing any more."""

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self


class Line:
    """Listens on a port of loopback and forwards both ways to a Unix socket or another port, in one thread."""

    def __init__(self, target: str | int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._silent = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._forward, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._wake.send(b".")
        self._thread.join(10)
        for end in (*self._pairs, self._listener, self._wake, self._woken):
            end.close()
        self._selector.close()

    @property
    def url(self) -> str:
        """Where the application connects through this line."""
        return f"postgresql://agentstore@127.0.0.1:{self.port}/agentstore?sslmode=disable"

    def fall_silent(self) -> None:
        """Forward nothing from now on; new connections are accepted, and hear nothing."""
        self._silent.set()

    def speak(self) -> None:
        """Work again, for connections made from now on; those of the silence stay dead, as after a failover."""
        self._silent.clear()

    def _forward(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select():
                end = key.fileobj
                assert isinstance(end, socket.socket)
                if end is self._listener:
                    self._accept()
                elif end is not self._woken and end in self._pairs:
                    self._carry(end)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
        if not self._silent.is_set():
            try:
                far.connect(self._target if isinstance(self._target, str) else ("127.0.0.1", self._target))
            except OSError:
                near.close()
                far.close()
                return
        self._pairs |= {near: far, far: near}
        if not self._silent.is_set():
            for end in (near, far):
                self._selector.register(end, selectors.EVENT_READ)

    def _carry(self, end: socket.socket) -> None:
        other = self._pairs[end]
        if self._silent.is_set():
            # Nobody reads this pair again: what is sent on it stays in the kernel's buffers.
            for side in (end, other):
                with suppress(KeyError):
                    self._selector.unregister(side)
            return
        try:
            data = end.recv(65536)
            if data:
                other.sendall(data)
                return
        except OSError:
            pass
        for side in (end, other):
            with suppress(KeyError):
                self._selector.unregister(side)
            self._pairs.pop(side, None)
            side.close()
