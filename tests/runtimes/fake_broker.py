"""A program that a runtime starts in place of a region, and that misbehaves as its options specify.

    python fake_broker.py [--BEHAVIOUR REGION] REGION_JSON

Behaviours of the named region: `--dies` exits at once, `--never-ready` never reports readiness, `--deaf` ignores
SIGTERM, `--lingers` closes its admin port on SIGTERM and lives on. The program listens on its admin port only, and
appends every received link state to `received.jsonl` in its folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Handler(BaseHTTPRequestHandler):
    region = ""
    ready = True
    received = Path()

    def do_GET(self) -> None:
        self.answer(
            200,
            {
                "region": self.region,
                "ready": self.ready,
                "waiting_for": [] if self.ready else ["the end of time"],
                "pid": os.getpid(),
                "links": [],
            },
        )

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/connections"):  # it emulates no connections
            self.answer(204)
            return
        source, target = self.path.split("/")[-2:]
        with self.received.open("a") as file:
            file.write(json.dumps([source, target, body["state"]]) + "\n")
        self.answer(204)

    def answer(self, status: int, body: Any = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if content:
            self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None: ...


def main(behaviours: list[str], path: Path) -> int:
    config = json.loads(path.read_text())
    options = dict(zip(behaviours[::2], behaviours[1::2], strict=True))
    mine = {option for option, region in options.items() if region == config["region"]}
    print(f"fake {config['region']} begins", flush=True)
    if "--dies" in mine:
        print("no disk left", file=sys.stderr)
        return 3
    Handler.region = config["region"]
    Handler.ready = "--never-ready" not in mine
    Handler.received = path.parent / "received.jsonl"
    server = ThreadingHTTPServer((config["bind_host"], config["admin_port"]), Handler)
    on_stop = {"--deaf": signal.SIG_IGN, "--lingers": lambda *_: server.socket.close()}
    chosen = [on_stop[option] for option in mine & on_stop.keys()]
    signal.signal(signal.SIGTERM, chosen[0] if chosen else lambda *_: os._exit(0))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not config["owner_pid"] or Path(f"/proc/{config['owner_pid']}").exists():
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:-1], Path(sys.argv[-1])))
