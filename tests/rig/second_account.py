"""The attack of another account on a demo that runs on the same machine: all that it tries, and what it gets.

Run as `python -I -S second_account.py UID`, by root or by that account itself. The program first gives up all other
rights. Its input is JSON: paths, pids, ports and logins of the demo, so that it need not find them. Its output is JSON:

* `files`, `processes`: those that it can use.
* `databases`, `servers`: those that let it in.
* `text`: all that it could read.
"""

import contextlib
import encodings.idna  # noqa: F401  # now: the account may not be able to read the files of this Python
import json
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

Json = dict[str, Any]
SECRET = re.compile(r"\b[0-9a-f]{16,64}\b")
MOST_BYTES = 65536
PROTOCOL = 196608
PASSWORD_ASKED = 3
SECONDS = 5
OF_PROCESS = ("environ", "cwd", "root", "fd", "maps")
"""Files of /proc that the kernel shows only to the account of the process."""
ROW = 'INSERT INTO dispatch.tasks (template, spec) VALUES (\'by-hand\', \'{"args": ["-c", "print(1)"]}\')'
"""A row with code of the attacker. It would run as the account that started the demo."""


def become(uid: int) -> None:
    if os.geteuid() != uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)


def read(path: str | Path) -> str:
    """The content of a file, the names in a folder, or the target of a link."""
    place = Path(path)
    if place.is_symlink():
        return str(place.readlink())
    if place.is_dir():
        return "\n".join(one.name for one in place.iterdir())
    with place.open("rb") as file:
        return file.read(MOST_BYTES).decode(errors="replace")


def try_path(path: str, text: list[str]) -> Iterator[str]:
    with contextlib.suppress(OSError):
        text.append(read(path))
        yield f"read {path}"
    if os.access(path, os.W_OK):
        yield f"write {path}"
    if os.access(path, os.X_OK):
        yield f"enter {path}"


def try_process(pid: int, text: list[str]) -> Iterator[str]:
    """Every account may read the arguments of every process. So only their text counts."""
    with contextlib.suppress(OSError):
        text.append(read(f"/proc/{pid}/cmdline").replace("\0", " "))
    for name in OF_PROCESS:
        with contextlib.suppress(OSError):
            text.append(read(f"/proc/{pid}/{name}"))
            yield f"read /proc/{pid}/{name}"
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        yield f"signal {pid}"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def receive(talk: socket.socket) -> tuple[bytes, bytes]:
    """One message of a Postgres server. Empty: it is not Postgres, or it refuses."""
    head = talk.recv(5, socket.MSG_WAITALL)
    if len(head) < struct.calcsize("!ci") or head[:1] not in b"RKSZCTDEN":
        return b"", b""
    return head[:1], talk.recv(struct.unpack("!i", head[1:])[0] - 4, socket.MSG_WAITALL)


def is_let_in(talk: socket.socket, login: str, password: str) -> bool:
    words = f"user\0{login}\0database\0demo\0\0".encode()
    talk.sendall(message(b"", struct.pack("!i", PROTOCOL) + words))
    kind, body = receive(talk)
    if kind == b"R" and struct.unpack("!i", body[:4])[0] == PASSWORD_ASKED:
        talk.sendall(message(b"p", f"{password}\0".encode()))
        kind, body = receive(talk)
    return kind == b"R" and struct.unpack("!i", body[:4])[0] == 0


def until_ready(talk: socket.socket) -> list[tuple[bytes, bytes]]:
    """The messages of the server until it accepts the next statement."""
    said = [receive(talk)]
    while said[-1][0] not in {b"Z", b""}:
        said.append(receive(talk))
    return said


def run(talk: socket.socket, statement: str) -> str:
    """The tag of the statement, like `INSERT 0 1`. Empty: it was refused."""
    until_ready(talk)
    talk.sendall(message(b"Q", f"{statement}\0".encode()))
    return next((body.decode().strip("\0") for kind, body in until_ready(talk) if kind == b"C"), "")


def try_database(port: int, logins: list[str], words: list[str]) -> Iterator[str]:
    for login in logins:
        for password in (*words, login, ""):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), SECONDS) as talk:
                if is_let_in(talk, login, password):
                    yield f"{login}: {run(talk, ROW)}"


def try_server(port: int, words: list[str]) -> Iterator[str]:
    for word in ("", *words):
        calls = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        with contextlib.suppress(OSError, HTTPException):
            calls.request("GET", "/api/v1/secrets", headers={"Authorization": f"Bearer {word}"} if word else {})
            if calls.getresponse().status == 200:
                yield f"secrets at {port}"
        calls.close()


def main(uid: int) -> None:
    known: Json = json.load(sys.stdin)
    become(uid)
    text: list[str] = []
    told: Json = {
        "files": [found for path in known["paths"] for found in try_path(path, text)],
        "processes": [found for pid in known["pids"] for found in try_process(pid, text)],
    }
    words = sorted(set(SECRET.findall("\n".join(text))))
    told["databases"] = [found for port in known["ports"] for found in try_database(port, known["logins"], words)]
    told["servers"] = [found for port in known["ports"] for found in try_server(port, words)]
    json.dump({**told, "text": "\n".join(text)}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
