"""A hub of one repository on this machine: the few answers that fetching a snapshot asks for."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

COMMIT = "a" * 40


class SmallHub(ThreadingHTTPServer):
    """Serves the files of `folder` as repository `name`, and keeps which were asked for."""

    def __init__(self, name: str, folder: Path, *, gated: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.name, self.folder, self.gated = name, folder, gated
        self.asked: list[str] = []


class _Answers(BaseHTTPRequestHandler):
    server: SmallHub

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, name = self.path.partition("?")[0], self.server.name
        files = sorted(self.server.folder.iterdir())
        if path.startswith(f"/api/models/{name}/tree/"):
            entries = [
                {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": etag(f)}
                for f in files
            ]
            self.answer(200, json.dumps(entries).encode())
        elif path.startswith(f"/api/models/{name}"):
            siblings = [{"rfilename": file.name} for file in files]
            about = {"id": name, "sha": COMMIT, "siblings": siblings}
            self.answer(200, json.dumps(about).encode())
        elif not path.startswith(f"/{name}/resolve/"):
            self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif self.server.gated:
            self.answer(403, b"", {"X-Error-Code": "GatedRepo"})
        else:
            file = self.server.folder / path.rpartition("/")[2]
            self.server.asked.append(file.name)
            headers = {"ETag": f'"{etag(file)}"', "X-Repo-Commit": COMMIT}
            self.answer(200, file.read_bytes(), headers)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def small_hub(name: str, folder: Path, *, gated: bool = False) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub while the block runs, and the files that were asked for."""
    with SmallHub(name, folder, gated=gated) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server.asked
        finally:
            server.shutdown()
            thread.join()


def etag(file: Path) -> str:
    return sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
