"""Check `security.authentication` and the credentials of `security.client`, and make their paths absolute.

A value `env:NAME` means the content of an environment variable. It is checked and written to a file when a run is
created (`runtimes.run_secrets`), not here: a topology can be checked where the variable does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator.config.declared import DeclaredTopology
from emulator.config.security import ENVIRONMENT, AuthenticationConfig, TokenConfig
from emulator.config.security_models import AuthenticationPart, ClientPart, SecurityPart, TokenPart
from emulator.config.yaml_errors import KeyPath
from emulator.config.yaml_source import YamlFile

PATH: KeyPath = ("security", "authentication")
CLIENT_PATH: KeyPath = ("security", "client")


def absolute(path: str | None, folder: Path) -> str:
    """Return an absolute path, or `env:NAME` as it is; empty for None."""
    if path is None or path.startswith(ENVIRONMENT):
        return path or ""
    return str(folder.absolute() / path)


def authentication_config(part: AuthenticationPart | None, folder: Path) -> AuthenticationConfig | None:
    """Return the configuration of regions. `folder`: that of `topology.yaml`."""
    if part is None:
        return None
    return AuthenticationConfig(
        token=None if part.token is None else _token_config(part.token, folder),
        basic_users=absolute(part.basic, folder),
        tls=part.tls,
        anonymous_role=part.anonymous_role or "",
        refresh_seconds=part.refresh_seconds,
        region_token=absolute(None if part.regions is None else part.regions.token, folder),
    )


def _token_config(part: TokenPart, folder: Path) -> TokenConfig:
    return TokenConfig(
        absolute(part.secret_key, folder),
        absolute(part.public_key, folder),
        tuple(part.algorithms or ()),
        part.role_claim,
        part.audience or "",
        part.issuer or "",
    )


def check_authentication(declared: DeclaredTopology, security: SecurityPart | None) -> None:
    """Report files that cannot be used, and parts that need another one."""
    if security is None:
        return
    file, folder = declared.file, Path(declared.file.name).parent
    part = security.authentication
    if part is not None:
        _check_methods(file, security, part)
        if part.token is not None:
            _check_token(file, part.token, folder)
        _check_file(file, (*PATH, "basic"), part.basic, folder)
        if part.regions is not None:
            _check_file(file, (*PATH, "regions", "token"), part.regions.token, folder)
    if security.client is not None:
        _check_client(file, security.client, part, folder)


def _check_methods(file: YamlFile, security: SecurityPart, part: AuthenticationPart) -> None:
    if part.token is None and part.basic is None and not part.tls:
        file.report(PATH, "must have a method: token, basic or tls")
    if part.tls and (security.tls is None or security.tls.client_certificates == "none"):
        file.report((*PATH, "tls"), "must be omitted without security.tls that requests client certificates")
    if part.regions is not None and part.token is None:
        file.report((*PATH, "regions", "token"), "must be omitted without security.authentication.token")


def _check_token(file: YamlFile, part: TokenPart, folder: Path) -> None:
    path = (*PATH, "token")
    given = [key for key in ("secret_key", "public_key") if getattr(part, key) is not None]
    if len(given) != 1:
        file.report(path, "must have secret_key or public_key, one of them")
        return
    (key,) = given
    name: str = getattr(part, key)
    if name.startswith(ENVIRONMENT):
        return
    try:
        _reader(key)(folder / name, part.algorithms or ())
    except OSError as failure:
        file.report((*path, key), f"must be a readable file; {_reason(failure)}")
    except ValueError as problem:
        file.report(
            (*path, key), f"must be a key of tokens; {str(problem).removeprefix(f'{folder / name}: ')}"
        )


def _reader(key: str) -> Callable[..., object]:
    try:
        from emulator.config.token_keys import public_keys, secret_keys
    except ImportError as missing:
        raise ValueError(f"tokens need the package {missing.name}: pip install 'geoemu[security]'") from None
    return secret_keys if key == "secret_key" else public_keys


def _check_client(file: YamlFile, client: ClientPart, part: AuthenticationPart | None, folder: Path) -> None:
    for key in ("token", "basic"):
        value = getattr(client, key)
        if value is None:
            continue
        if part is None or getattr(part, key) is None:
            file.report((*CLIENT_PATH, key), f"must be omitted without security.authentication.{key}")
        _check_file(file, (*CLIENT_PATH, key), value, folder)
    if client.token is not None and client.basic is not None:
        file.report((*CLIENT_PATH, "basic"), "must be omitted beside token: a client presents one of them")


def _check_file(file: YamlFile, path: KeyPath, name: str | None, folder: Path) -> None:
    if name is None or name.startswith(ENVIRONMENT):
        return
    try:
        (folder / name).read_bytes()
    except OSError as failure:
        file.report(path, f"must be a readable file; {_reason(failure)}")


def _reason(failure: OSError) -> str:
    return "it does not exist" if isinstance(failure, FileNotFoundError) else str(failure.strerror)
