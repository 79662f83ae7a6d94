"""The Python client with OAuth2: it requests a token from a local issuer, and the region verifies it with the issuer's
key set."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from emulator.config.security import AuthenticationConfig, SecurityConfig, TokenConfig
from emulator.model.principals import Principal
from tests.broker.authentication.tokens import RSA_KEY, key_set, token
from tests.broker.regions import regions
from tests.clients.harness import ClientProgram, Failed, driver

pytestmark = pytest.mark.real
AUDIENCE = "urn:pulsar:test"


class Issuer(BaseHTTPRequestHandler):
    """Issues tokens to the client `app` with the secret `password` (client_credentials)."""

    address = ""
    requests: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        self._answer(200, {"token_endpoint": f"{self.address}/oauth/token", "issuer": self.address})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {name: [value] for name, value in json.loads(raw).items()} if raw[0] == "{" else parse_qs(raw)
        self.requests.append(form)
        if form.get("client_secret") != ["password"]:
            self._answer(401, {"error": "invalid_client"})
            return
        issued = token(
            RSA_KEY,
            "RS256",
            {"kid": "one"},
            sub=form["client_id"][0],
            aud=form["audience"][0],
            iss=self.address,
        )
        self._answer(200, {"access_token": issued.decode(), "expires_in": 3_600, "token_type": "Bearer"})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def issuer() -> Iterator[type[Issuer]]:
    class Fresh(Issuer):
        requests: list[dict[str, list[str]]] = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Fresh)
    Fresh.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Fresh
    server.shutdown()
    thread.join()
    server.server_close()


def secured(folder: Path, issuer: type[Issuer], audience: str = AUDIENCE) -> SecurityConfig:
    config = TokenConfig(public_key=key_set(folder, one=RSA_KEY), audience=audience, issuer=issuer.address)
    return SecurityConfig(authentication=AuthenticationConfig(token=config))


def login(folder: Path, issuer: type[Issuer], secret: str = "password") -> str:
    """Write the parameters of the client to a file, and return its path."""
    key = folder / "client.json"
    key.write_text(json.dumps({"client_id": "app", "client_secret": secret, "issuer_url": issuer.address}))
    path = folder / "oauth2.json"
    parameters = {"issuer_url": issuer.address, "private_key": f"file://{key}", "audience": AUDIENCE}
    path.write_text(json.dumps({"type": "client_credentials", **parameters}))
    return str(path)


async def test_a_token_of_the_issuer_is_accepted(tmp_path: Path, issuer: type[Issuer]) -> None:
    async with (
        regions("us", security={"us": secured(tmp_path, issuer)}) as world,
        driver("python") as process,
    ):
        program, url = ClientProgram(process), f"pulsar://127.0.0.1:{world.ports['us']}"
        await program.ask("client", key="us", url=url, timeout_ms=20_000, oauth2=login(tmp_path, issuer))
        await program.subscribe()
        await program.producer()
        await program.send("hello")
        assert await program.receive() == "hello"
        assert {one.principal for one in world.running["us"].clients.connections} == {Principal("app")}
        assert issuer.requests[0]["grant_type"] == ["client_credentials"]


@pytest.mark.parametrize(
    ("secret", "audience"), [("wrong", AUDIENCE), ("password", "another")], ids=["secret", "audience"]
)
async def test_a_wrong_secret_or_audience_fails(
    tmp_path: Path, issuer: type[Issuer], secret: str, audience: str
) -> None:
    security = {"us": secured(tmp_path, issuer, audience)}
    async with regions("us", security=security) as world, driver("python") as process:
        program, url = ClientProgram(process), f"pulsar://127.0.0.1:{world.ports['us']}"
        path = login(tmp_path, issuer, secret)
        await program.ask("client", key="us", url=url, timeout_ms=5_000, oauth2=path)
        with pytest.raises(Failed):
            await program.producer()
        assert not any(one.principal.role for one in world.running["us"].clients.connections)
