"""An extender that looks at nothing. It shows what any extender costs kube-scheduler.

`python -m benchmarks.empty_extender PORT` passes every node and gives it 0 points, with as little work as possible.
"""

import asyncio
import sys
from typing import cast

import msgspec
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
LENGTH = b"content-length:"


class Echoed(msgspec.Struct, rename="pascal"):
    node_names: msgspec.Raw


class Scored(msgspec.Struct, rename="pascal"):
    node_names: list[str]


class Answering(asyncio.Protocol):
    """One connection. Requests come one after the other, as kube-scheduler sends them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._come = b""

    def data_received(self, data: bytes) -> None:
        self._come += data
        head, end, body = self._come.partition(b"\r\n\r\n")
        if end and len(body) >= length_of(head):
            self._come = b""
            reply = answer(is_filter=head.startswith(b"POST /filter "), body=body)
            self._transport.write(HEAD % len(reply) + reply)


def length_of(head: bytes) -> int:
    return int(head.lower().split(LENGTH)[1].split(b"\r\n")[0])


def answer(*, is_filter: bool, body: bytes) -> bytes:
    if is_filter:
        return b'{"NodeNames":' + bytes(msgspec.json.decode(body, type=Echoed).node_names) + b"}"
    names = msgspec.json.decode(body, type=Scored).node_names
    return b"[" + b",".join(b'{"Host":"%s","Score":0}' % name.encode() for name in names) + b"]"


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
