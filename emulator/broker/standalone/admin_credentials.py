"""Credentials of `bin/pulsar-admin`: the authentication plugin and its parameters, as in Pulsar's `client.conf`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

_PACKAGE: Final = "org.apache.pulsar.client.impl.auth.Authentication"
TOKEN: Final = ("token", f"{_PACKAGE}Token")
BASIC: Final = ("basic", f"{_PACKAGE}Basic")
TOKEN_RULE: Final = 'must be token:…, file:///path or {"token": "…"}'


def authorization(plugin: str, parameters: str) -> str:
    """Return the value of the header Authorization; empty without a plugin. Raises ValueError for another plugin and
    for parameters of another form; errors do not contain the parameters."""
    if not plugin:
        return ""
    if plugin in TOKEN:
        return f"Bearer {_token(parameters)}"
    if plugin in BASIC:
        return f"Basic {base64.b64encode(_user(parameters)).decode()}"
    raise ValueError(f"authPlugin={plugin}: pulsar-admin of this image has {TOKEN[1]} and {BASIC[1]}")


def _token(parameters: str) -> str:
    if parameters.startswith("file:"):
        try:
            found = Path(parameters.removeprefix("file:").removeprefix("//")).read_text()
        except (OSError, ValueError):
            raise ValueError("authParams: the file of the token cannot be read") from None
    elif parameters.startswith("{"):
        found = str(_fields(parameters).get("token", ""))
    else:
        found = parameters.removeprefix("token:")
    token = found.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"authParams: {TOKEN_RULE}")
    return token


def _user(parameters: str) -> bytes:
    fields = _fields(parameters)
    try:
        return f"{fields['userId']}:{fields['password']}".encode()
    except KeyError:
        raise ValueError('authParams: must be {"userId": "…", "password": "…"}') from None


def _fields(parameters: str) -> dict[str, Any]:
    try:
        found = json.loads(parameters)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("authParams: must be a JSON object")
    return found
