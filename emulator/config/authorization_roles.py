"""The roles that `security.authorization` of a topology names, and their relations to the rest of the file."""

from __future__ import annotations

from emulator.config.declared import DeclaredTopology, tenants_of
from emulator.config.security import AuthorizationConfig
from emulator.config.security_models import AuthorizationPart, SecurityPart
from emulator.config.yaml_errors import KeyPath

PATH: KeyPath = ("security", "authorization")


def authorization_config(part: AuthorizationPart | None) -> AuthorizationConfig | None:
    if part is None:
        return None
    admins = {tenant: tuple(roles) for tenant, roles in (part.tenant_admins or {}).items()}
    return AuthorizationConfig(
        tuple(part.superusers or ()), tuple(part.proxy_roles or ()), part.wildcards, admins
    )


def check_authorization(declared: DeclaredTopology, part: SecurityPart | None) -> None:
    """Report authorization without authentication, tenants that are not listed, and superusers without credentials."""
    if part is None or part.authorization is None:
        return
    file, content = declared.file, declared.content
    assert content is not None
    if part.authentication is None:
        file.report(PATH, "must be omitted without security.authentication, which establishes the roles")
        return
    tenants = tenants_of(content)
    for tenant in part.authorization.tenant_admins or {}:
        if tenant not in tenants:
            rule = f"must be a tenant that is listed under tenants: {', '.join(tenants)}"
            file.report((*PATH, "tenant_admins", tenant), rule, about_key=True)
    anonymous = part.authentication.anonymous_role
    for index, role in enumerate(part.authorization.superusers or ()):
        if role == anonymous:
            rule = "must not be the anonymous role: every client without credentials would be a superuser"
            file.report((*PATH, "superusers", index), rule)
