"""The value that commands to the processes of actors contain."""

from __future__ import annotations

import json

import pytest

from emulator.net.credentials import NO_CREDENTIALS, Credentials
from emulator.net.tls import Certificates
from emulator.scenarios.actors.client_security import NO_SECURITY, ClientSecurity


@pytest.mark.parametrize("tls", [None, Certificates("ca.pem"), Certificates("ca.pem", "app.pem", "app.key")])
@pytest.mark.parametrize("credentials", [NO_CREDENTIALS, Credentials(token="t"), Credentials(tls=True)])
def test_it_passes_through_json(tls: Certificates | None, credentials: Credentials) -> None:
    security = ClientSecurity(tls, credentials)
    assert ClientSecurity.from_json(json.loads(json.dumps(security.to_json()))) == security


def test_a_command_without_it_has_neither_tls_nor_credentials() -> None:
    assert ClientSecurity.from_json(None) == NO_SECURITY == ClientSecurity()
