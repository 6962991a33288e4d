"""A server on the loopback address with the part of the Hub's protocol that huggingface_hub uses.

Repositories are in memory. A test can make answers wrong: `refusals` sets the status of requests, `change_listing`
changes the list of files of a repository, and `change_content` changes a file that is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_this_test"
_LARGE = (".safetensors", ".mp4")  # the Hub stores these outside git (LFS)


@dataclass
class Repository:
    """A repository. Each commit is a complete set of files."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        sha = hashlib.sha1(f"{len(self.commits)}".encode()).hexdigest()
        self.commits[sha], self.branches[branch] = files, sha
        self.messages.append(message)
        return sha

    def files(self, branch: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]]


@dataclass
class Server:
    """The contents of the server, and its faults."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # by SHA-256
    requests: list[str] = field(default_factory=list)  # "GET /path", in order
    refusals: dict[str, int] = field(default_factory=dict)  # pattern of a request -> status of the answer
    change_listing: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda entries: entries
    change_content: Callable[[str, bytes], bytes] = lambda name, data: data
    other_host: bool = False  # large files come from another host, as the Hub's do
    other_host_tokens: list[str | None] = field(default_factory=list)  # Authorization headers that the other host got

    def repository(self, name: str = "me/run", **files: bytes) -> Repository:
        found = self.repositories[name] = Repository()
        found.commit("main", {".gitattributes": b"", **files}, "initial commit")
        return found


def entry(name: str, data: bytes) -> dict[str, Any]:
    """Return the entry of a file in the Hub's listing."""
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    about = {"rfilename": name, "size": len(data), "blobId": blob}
    if name.endswith(_LARGE):
        about["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "pointerSize": 130}
    return about


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    hub: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _handle(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else self._chunks()
        path = unquote(urlsplit(self.path).path)
        call = f"{self.command} {path}"
        self.hub.requests.append(call)
        for pattern, status in self.hub.refusals.items():
            if re.search(pattern, call):
                return self._answer(status, b'{"error": "said\\u001b[31m no"}')
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        for pattern, act in ROUTES.items():
            if match := re.fullmatch(pattern, call):
                if not known and (self.command == "POST" or "whoami" in path):
                    return self._answer(401, b"{}")
                return act(self, body, *match.groups())
        return self._answer(404, b"{}")

    do_GET = do_POST = do_PUT = do_HEAD = _handle  # noqa: N815

    def _chunks(self) -> bytes:
        data = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while count := int(self.rfile.readline(), 16):
                data += self.rfile.read(count)
                self.rfile.readline()
            self.rfile.readline()
        return data

    def _answer(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _json(self, value: Any, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode())

    # ------------------------------------------------------------------------------------------------ requests
    def whoami(self, body: bytes) -> None:
        self._json({"name": "me", "type": "user"})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        name = f"{asked['organization'] or 'me'}/{asked['name']}"
        there = name in self.hub.repositories
        if not there:
            self.hub.repository(name).private = asked.get("visibility") == "private"
        self._json({"url": f"{self.hub.address}/{name}"}, 409 if there else 200)

    def about(self, body: bytes, name: str, revision: str | None = None) -> None:
        found = self._find(name, revision or "main")
        if found is not None:
            repository, sha = found
            about = {"id": name, "sha": sha, "private": repository.private, "tags": [], "downloads": 0}
            files = repository.commits[sha]
            about["siblings"] = self.hub.change_listing([entry(path, data) for path, data in files.items()])
            self._json(about)

    def tree(self, body: bytes, name: str, revision: str) -> None:
        found = self._find(name, revision)
        if found is not None:
            files = found[0].commits[found[1]]
            self._json([{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in files.items()])

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> None:
        found = self._find(name, revision)
        if found is None:
            return None
        repository, sha = found
        data = repository.commits[sha].get(path)
        if data is None:
            return self._answer(404, b"", X_Error_Code="EntryNotFound")
        data = self.hub.change_content(path, data)
        if self.hub.other_host and path.endswith(_LARGE):
            oid = hashlib.sha256(data).hexdigest()
            self.hub.large[oid] = data
            host = self.hub.address.replace("127.0.0.1", "localhost")
            return self._answer(302, b"", Location=f"{host}/large/{oid}")
        return self._answer(200, data)

    def serve_large_file(self, body: bytes, oid: str) -> None:
        self.hub.other_host_tokens.append(self.headers.get("Authorization"))
        self._answer(200, self.hub.large[oid])

    def validate(self, body: bytes) -> None:
        self._json({"errors": [], "warnings": []})

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(_LARGE) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._json({"files": files})

    def batch(self, body: bytes, name: str) -> None:
        objects = [
            one | {"actions": {"upload": {"href": f"{self.hub.address}/large/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        self._json({"objects": objects})

    def put(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.large[oid] = body
        self._json({})

    def commit(self, body: bytes, name: str, branch: str) -> None:
        repository = self.hub.repositories[name]
        files = dict(repository.files(branch))
        lines = [json.loads(line) for line in body.splitlines()]
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        sha = repository.commit(branch, files, lines[0]["value"]["summary"])
        self._json({"commitUrl": f"{self.hub.address}/{name}/commit/{sha}", "commitOid": sha})

    def _find(self, name: str, revision: str) -> tuple[Repository, str] | None:
        repository = self.hub.repositories.get(name)
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not known):
            self._answer(404 if known else 401, b"{}", X_Error_Code="RepoNotFound")
            return None
        sha = repository.branches.get(revision, revision)
        if sha not in repository.commits:
            self._answer(404, b"{}", X_Error_Code="RevisionNotFound")
            return None
        return repository, sha


_NAME = r"([^/]+/[^/]+)"
ROUTES: dict[str, Callable[..., None]] = {
    r"GET /api/whoami-v2": Handler.whoami,
    r"POST /api/repos/create": Handler.create,
    rf"GET /api/models/{_NAME}": Handler.about,
    rf"GET /api/models/{_NAME}/revision/(.+)": Handler.about,
    rf"GET /api/models/{_NAME}/tree/(.+)": Handler.tree,
    rf"GET /{_NAME}/resolve/([^/]+)/(.+)": Handler.resolve,
    r"POST /api/validate-yaml": Handler.validate,
    rf"POST /api/models/{_NAME}/preupload/(.+)": Handler.preupload,
    rf"POST /{_NAME}\.git/info/lfs/objects/batch": Handler.batch,
    r"PUT /large/([0-9a-f]+)": Handler.put,
    r"GET /large/([0-9a-f]+)": Handler.serve_large_file,
    rf"POST /api/models/{_NAME}/commit/(.+)": Handler.commit,
}


@contextmanager
def serving() -> Iterator[Server]:
    """Run the server in threads of this process."""
    hub = Server()
    handler = type("OfThisServer", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
