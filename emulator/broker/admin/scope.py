"""What the rows of the HTTP port are about."""

from __future__ import annotations

from enum import Enum


class ResourceScope(Enum):
    """What a row is about, and so what a caller must be allowed to deal with."""

    REGION = "region"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
