"""Asks our extender over HTTP: in the words of kube-scheduler, or with any other bytes."""

import asyncio
import io
from typing import Any

import aiohttp
import msgspec

from tests.contract.bodies import POINTS, asking


class Asked:
    """A running extender, asked over one connection or several."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session

    async def post(self, verb: str, body: Any, **headers: str) -> tuple[int, Any]:
        sent = io.BytesIO(body) if isinstance(body, bytes) else body  # a stream may have any size
        async with self.session.post(f"{self.url}/{verb}", data=sent, headers=headers) as answer:
            assert answer.content_type == "application/json"
            return answer.status, msgspec.json.decode(await answer.read())

    async def passed(self, body: bytes) -> list[str]:
        """Names that filter lets pass, as names or as whole nodes, as the request has them."""
        status, answer = await self.post("filter", body)
        assert (status, answer["Error"], answer["FailedNodes"]) == (200, "", {})
        assert answer["FailedAndUnresolvableNodes"] == {}
        given, other = ("NodeNames", "Nodes") if b'"NodeNames": null' not in body else ("Nodes", "NodeNames")
        assert answer[other] is None
        if given == "NodeNames":
            return list(answer["NodeNames"])
        return [item["metadata"]["name"] for item in answer["Nodes"]["items"] or ()]

    async def points(self, body: bytes) -> dict[str, int]:
        status, answer = await self.post("prioritize", body)
        assert status == 200, answer
        scores = {one["Host"]: one["Score"] for one in answer}
        assert len(scores) == len(answer), "each node once, or its points add up"
        return scores

    async def answers_well(self) -> None:
        body = asking(NodeNames=["c", "a", "b"])
        assert await self.passed(body) == ["c", "a", "b"]
        assert await self.points(body) == POINTS

    async def begin(self, verb: str, body: bytes, sent: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection over which so many bytes of the body were sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:sent])
        await writer.drain()
        return reader, writer

    async def say(self, sent: bytes) -> bytes:
        """The whole answer, until the server closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        return answer
