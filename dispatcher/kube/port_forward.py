"""Connections to a port of a Pod through the API server, as `kubectl port-forward` makes them.

Each connection is one web socket to `pods/NAME/portforward`. Each message begins with the number of its channel. The
first message of a channel holds the port, in two bytes. Source: `streaming/portforward/websocket.go` of Kubernetes.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

from dispatcher.kube.client import KubeClient
from dispatcher.model.errors import ClusterAway, ClusterError

PROTOCOL: Final = "v4.channel.k8s.io"
DATA, ERRORS = b"\0", b"\1"
PIECE_BYTES: Final = 1 << 16


class PortForward:
    """Forwards each connection to a Unix socket to one port of one Pod.

    socket: its folder is closed to all other accounts of this machine. A port of the loopback would be open to them.
    fault: why the last connection failed; None: no connection failed.
    """

    def __init__(self, client: KubeClient, namespace: str, pod: str, port: int) -> None:
        self.socket = Path()
        self.fault: ClusterError | None = None
        self._client = client
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward"
        self._port = port
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["PortForward"]:
        """Listens. Raises ClusterAway without a folder for the socket."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dispatcher-"))
                self.socket = Path(folder) / "socket"
                server = await asyncio.start_unix_server(self._accept, self.socket)
            except OSError as fault:
                raise ClusterAway(f"port-forward: no socket below {tempfile.gettempdir()}: {fault}") from fault
            try:
                yield self
            finally:
                server.close()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)  # cancelled; faults are in `fault`

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channels = await self._client.web_socket(self._path, {"ports": str(self._port)}, PROTOCOL)
            sending = asyncio.create_task(send(reader, channels))
            try:
                await receive(channels, writer)
            finally:
                sending.cancel()
                await channels.close()
        except ClusterError as fault:
            self.fault = fault
        except OSError as fault:  # whoever asked has closed the connection
            self.fault = ClusterAway(f"port-forward: {fault}")
        finally:
            writer.close()


async def send(reader: asyncio.StreamReader, channels: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(OSError, aiohttp.ClientError):  # an end that `receive` notices, too
        while piece := await reader.read(PIECE_BYTES):
            await channels.send_bytes(DATA + piece)
    await channels.close()


async def receive(channels: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Writes what comes, until one end closes. Raises ClusterAway if nobody listens at the port in the Pod."""
    begun: set[bytes] = set()
    async for message in channels:
        if message.type is not aiohttp.WSMsgType.BINARY:
            continue
        channel, piece = message.data[:1], message.data[1:]
        if channel not in begun:
            begun.add(channel)  # the port
        elif channel == ERRORS:
            raise ClusterAway(f"port-forward: {piece.decode(errors='replace')[:500].strip()}")
        elif channel == DATA:
            writer.write(piece)
            await writer.drain()
