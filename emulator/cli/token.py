"""`geoemu token`: issue a token for a role."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from emulator.cli.application import app
from emulator.cli.options import DEFAULT_TOPOLOGY, Expires, TopologyFile
from emulator.config.security import ENVIRONMENT, TokenConfig
from emulator.errors import Refused

Role = Annotated[str, typer.Argument(metavar="ROLE", help="The role that the token proves.")]
SecretKey = Annotated[
    Path | None,
    typer.Option(
        "--secret-key", metavar="FILE", help="Sign with this secret key. Default: that of the topology."
    ),
]
PrivateKey = Annotated[
    Path | None,
    typer.Option("--private-key", metavar="FILE", help="Sign with this private key (RSA or EC, PEM or DER)."),
]
Create = Annotated[
    bool, typer.Option("--create", help="Create the file of --secret-key first if it does not exist.")
]


@app.command(
    epilog="Example: geoemu token app --expires 1h --secret-key certs/token.key --create > app.token"
)
def token(
    role: Role,
    expires: Expires = None,
    secret_key: SecretKey = None,
    private_key: PrivateKey = None,
    create: Create = False,
    file: TopologyFile = DEFAULT_TOPOLOGY,
) -> None:
    """Issue a token for a role, and print it. It is signed with the secret key of the topology, whose audience, issuer
    and role claim it has, or with another key. `pulsar tokens create` issues the same tokens."""
    if secret_key is not None and private_key is not None:
        raise typer.BadParameter("give --secret-key or --private-key, not both", param_hint="--private-key")
    if create and secret_key is None:
        raise typer.BadParameter("needs --secret-key", param_hint="--create")
    if not role or not role.isprintable():
        raise typer.BadParameter("must be a printable name", param_hint="ROLE")
    if create and secret_key is not None and not secret_key.exists():
        _create(secret_key)  # before the topology is read, which may name this file
    print(issue(role, expires, secret_key, private_key, _config(file)))


def issue(
    role: str,
    expires: timedelta | None,
    secret_key: Path | None,
    private_key: Path | None,
    config: TokenConfig | None,
) -> str:
    """Return a token. Raises Refused if there is no usable key."""
    from emulator.config.tokens import claims_of, read_secret, signed_by_private_key, signed_by_secret

    seconds = None if expires is None else expires.total_seconds()
    claims = claims_of(role, config or TokenConfig(), seconds)
    try:
        if private_key is not None:
            return signed_by_private_key(claims, private_key)
        secret = _configured_secret(config) if secret_key is None else read_secret(secret_key)[0]
        return signed_by_secret(claims, secret)
    except ImportError as missing:
        raise Refused(f"tokens need the package {missing.name}: pip install 'geoemu[security]'") from None
    except (OSError, ValueError) as problem:
        raise Refused(str(problem)) from None


def _create(secret_key: Path) -> None:
    from emulator.config.tokens import create_secret

    try:
        create_secret(secret_key)
    except OSError as failure:
        raise Refused(str(failure)) from None


def _configured_secret(config: TokenConfig | None) -> bytes:
    """Return the secret key that the topology names, as a file or an environment variable."""
    from emulator.config.tokens import read_secret, secrets_in

    if config is None:
        raise Refused("the topology has no security.authentication.token: give --secret-key or --private-key")
    if not config.secret_key:
        raise Refused("the topology has only the public key of tokens: give --private-key")
    if not config.secret_key.startswith(ENVIRONMENT):
        return read_secret(Path(config.secret_key))[0]
    content = os.environ.get(config.secret_key.removeprefix(ENVIRONMENT))
    if not content:
        raise Refused(f"{config.secret_key}: the environment variable, which the topology names, is not set")
    return secrets_in(content.encode(), config.secret_key)[0]


def _config(file: Path) -> TokenConfig | None:
    """Return how regions verify tokens; None: there is no topology, or it does not verify any."""
    if file == DEFAULT_TOPOLOGY and not file.exists():
        return None
    from emulator.config.loading import load_topology

    authentication = load_topology(file).security.authentication
    return None if authentication is None else authentication.token
