"""The fields of `topology.yaml` and `clusters/*.yaml`.

The check of users' files and the JSON Schemas for editors (`json_schema`) are derived from these models. Fields with a
default are optional; an empty part means its default, too. `validation` checks relations between fields.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)

from emulator.config.broker_settings import BrokerSettings
from emulator.config.config_model import ConfigModel
from emulator.config.link_profiles import LinkProfileName
from emulator.config.security_models import Role, SecurityPart
from emulator.config.shapes import ShapeName
from emulator.config.yaml_errors import rule
from emulator.model.units import ms_or_never
from emulator.model.values import CLIENTS, SUBSCRIPTION_REPLICATION_BOUNDS, is_valid_name
from emulator.net.addresses import HOST_RULE, is_host, is_wildcard

HOUR_MS = 3_600_000
INTEGER_MAX = 2**31 - 1
SETTINGS_THAT_MAY_BE_ZERO = (
    "clients_bytes_max",
    "connections_max",
    "connections_per_host_max",
    "consumers_per_connection_max",
    "exclusive_grace_period_ms",
    "failed_authentications_per_host_max",
    "failover_delay_ms",
    "http_connections_max",
    "http_connections_per_host_max",
    "metadata_sync_clock_ahead_ms_max",
    "namespaces_per_tenant_max",
    "peer_reconnect_backoff_ms",
    "producers_per_connection_max",
    "region_tail_bytes",
    "tenants_max",
    "topic_idle_ms",
    "topics_per_tenant_max",
    "transaction_coordinators",
    "transaction_key_labels_max",
    "transaction_outcomes_max",
)
ALL = "all"

# ---- names -------------------------------------------------------------------------------------------------

# Regions and clusters become folders, host names and files.
_FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_PULSAR_NAME = r"[-=:.\w]+"
_HOST = r"[A-Za-z0-9._:-]+"
_SERVERS = r"[^\s,:]+:[0-9]+(,[^\s,:]+:[0-9]+)*"


def _must(accepts: Callable[[str], object], sentence: str) -> AfterValidator:
    """Return a validator of text that reports `sentence` for invalid text."""

    def check(text: str) -> str:
        if not accepts(text):
            raise rule(sentence)
        return text

    return AfterValidator(check)


def _check_replication_regions(value: Any) -> Any:
    if value == ALL:
        return value
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise rule("must be all or a list of regions")
    if not value:
        raise rule("must name at least one region")
    return value


def _is_pulsar_name(text: str) -> bool:
    return text.isprintable() and is_valid_name(text)


def _text_like(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


_IS_FILE_NAME = _must(
    re.compile(_FILE_NAME).fullmatch, "must be 1 to 63 of a-z A-Z 0-9 . _ - and begin with a letter or digit"
)
FileName = Annotated[str, _IS_FILE_NAME, _text_like(_FILE_NAME)]
RegionName = Annotated[
    str,
    _must(lambda text: text != ALL, "must not be a region's name: all means every region"),
    _must(lambda text: text != CLIENTS, "must not be a region's name: clients means the clients of a region"),
    _IS_FILE_NAME,
    _text_like(_FILE_NAME),
]
TenantName = Annotated[
    str,
    _must(_is_pulsar_name, "must be made of letters, digits and - = : . _"),
    _text_like(_PULSAR_NAME),
]
NamespaceName = Annotated[
    str,
    _must(
        lambda text: text.count("/") == 1 and all(map(_is_pulsar_name, text.split("/"))),
        "must be tenant/namespace, each made of letters, digits and - = : . _",
    ),
    _text_like(f"{_PULSAR_NAME}/{_PULSAR_NAME}"),
]
Host = Annotated[str, _must(is_host, HOST_RULE), _text_like(_HOST)]
AdvertisedHost = Annotated[
    Host,
    _must(
        lambda text: not is_wildcard(text),
        "must be an address that clients can connect to; `listen` may mean every address",
    ),
]
Servers = Annotated[
    str, _must(re.compile(_SERVERS).fullmatch, "must be host:port[,host:port...]"), _text_like(_SERVERS)
]
ReplicationRegions = Annotated[
    Any,
    PlainValidator(_check_replication_regions),
    WithJsonSchema(
        {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    ),
]


def _check_duration_or_empty(text: str) -> str:
    try:
        ms_or_never(text)
    except ValueError as problem:
        raise rule(str(problem)) from None
    return text


PermittedAction = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
"""`core.authorization.grants.ACTIONS`."""
DurationOrEmpty = Annotated[str, AfterValidator(_check_duration_or_empty)]
DURATION_SETTINGS = ("partial_snapshots_after",)
Milliseconds = Annotated[float, Field(ge=0, le=HOUR_MS, allow_inf_nan=False)]
BytesPerSecond = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]


def _bounds(setting: str) -> Any:
    """Return the field of a setting that is a whole number, with its minimum and maximum."""
    minimum, maximum = SUBSCRIPTION_REPLICATION_BOUNDS.get(
        setting, (0 if setting in SETTINGS_THAT_MAY_BE_ZERO else 1, INTEGER_MAX)
    )
    return Field(ge=minimum, le=maximum)


SnapshotInterval = Annotated[int, _bounds("snapshot_interval_ms")]
SnapshotTimeout = Annotated[int, _bounds("snapshot_timeout_ms")]
SnapshotTimeoutGrowth = Annotated[int, _bounds("snapshot_timeout_growth_max")]
SnapshotCacheSize = Annotated[int, _bounds("snapshot_cache_size")]
IndividualAckInterval = Annotated[int, _bounds("individual_ack_interval_ms")]
IndividualAcksMax = Annotated[int, _bounds("individual_acks_max")]

# ---- parts -------------------------------------------------------------------------------------------------


def _setting_type(setting: str, hint: Any) -> Any:
    """Return the type of a setting, with its range."""
    if setting in DURATION_SETTINGS:
        return DurationOrEmpty
    if hint is not int:
        return hint
    return Annotated[int, _bounds(setting)]


if TYPE_CHECKING:

    class RegionSettings(ConfigModel):
        """The fields of `BrokerSettings`, each optional."""

else:
    _hints = get_type_hints(BrokerSettings)
    RegionSettings = create_model(
        "Settings",
        __base__=ConfigModel,
        __doc__="Settings of a region's broker; omitted ones keep their defaults.",
        **{
            setting.name: (_setting_type(setting.name, _hints[setting.name]), setting.default)
            for setting in dataclasses.fields(BrokerSettings)
        },
    )


class LogPart(ConfigModel):
    """Storage backend of a region. The innermost `log:` applies as a whole."""

    backend: Literal["sqlite", "memory", "kafka"] = "sqlite"
    """sqlite: a file in the run directory. memory: lost when the region stops. kafka: topics of a Kafka
    cluster."""
    bootstrap_servers: Servers | None = None
    """kafka only: host:port[,host:port...]. Default: geoemu starts a Kafka for each region."""
    options: dict[str, Any] | None = None
    """kafka only: client settings passed through (TLS, SASL), topic prefix."""


class LinkFields(ConfigModel):
    """Properties of a link in one direction."""

    profile: LinkProfileName | None = None
    """Named link whose values apply; the other fields override single values. See Link profiles."""
    latency_ms: Milliseconds | None = None
    """One-way latency. Default 0."""
    jitter_ms: Milliseconds | None = None
    """Maximum additional random delay; bytes never overtake each other. Default 0."""
    bandwidth_bytes_per_second: BytesPerSecond | None = None
    """Bandwidth in one direction. Empty: unlimited."""


class LinkException(LinkFields):
    """Links that differ from the defaults: `between` two regions in both directions, or `from` one `to`
    another.

    One direction outranks both. Omitted fields keep their defaults."""

    between: list[str] | None = Field(None, json_schema_extra={"minItems": 2, "maxItems": 2})
    """Two regions; both directions."""
    source: str | None = Field(None, alias="from")
    """The region that sends; one direction."""
    target: str | None = Field(None, alias="to")
    """The region that receives; one direction."""


class LinksPart(ConfigModel):
    """Every ordered pair of regions has a link."""

    profile: LinkProfileName | None = None
    """Profile of all links; `defaults` override single values."""
    defaults: LinkFields | None = None
    """Defaults of all links."""
    exceptions: list[LinkException] | None = None
    """Exceptions for single links."""


class NamespacePart(ConfigModel):
    """A namespace and its policies at the start of a run."""

    regions: ReplicationRegions = ALL
    """Regions between which it is replicated: all, or a list. A single region: no replication."""
    deduplication: bool = False
    """Whether a message that a producer sends again after a failure is stored only once."""
    keep_alive_interval_ms: int = Field(default=0, ge=0, le=3_600_000)
    """Keep-alive interval for clients that publish here. 0: the region's."""
    exclusive_home: str = ""
    """The only region in which clients may publish, so that an exclusive producer is the only one in all
    regions."""
    retention_minutes: int = Field(default=-1, ge=-1)
    """Time for which messages are retained after every subscription has acknowledged them. -1: for ever, so
    that a run can be verified."""
    retention_megabytes: int = Field(default=-1, ge=-1)
    """Maximum size of retained acknowledged messages per topic. -1: unlimited. Both 0: none are retained."""
    message_ttl_seconds: int = Field(default=0, ge=0)
    """Time after which an unacknowledged message expires. 0: never."""
    replicate_subscription_state: bool | None = None
    """Whether every durable subscription is replicated, also if its consumers do not request it. Default
    of this and the following policies: the region's setting of that name."""
    snapshot_interval_ms: SnapshotInterval | None = None
    """Interval of snapshots while there is traffic."""
    snapshot_timeout_ms: SnapshotTimeout | None = None
    """Time after which a snapshot that lacks a response is dropped."""
    snapshot_timeout_growth_max: SnapshotTimeoutGrowth | None = None
    """Maximum factor by which the timeout grows. 1: it never grows."""
    snapshot_cache_size: SnapshotCacheSize | None = None
    """Number of snapshots that each replicated subscription remembers."""
    replicate_individual_acks: bool | None = None
    """Whether messages that a replicated subscription acknowledged beyond its position are not delivered
    again in other regions."""
    individual_ack_interval_ms: IndividualAckInterval | None = None
    """Minimum time between two updates with such acknowledgements of a subscription."""
    individual_acks_max: IndividualAcksMax | None = None
    """Maximum number of ranges of entries and of partly acknowledged batches in such an update."""
    snapshot_schedule: Literal["periodic", "adaptive"] | None = None
    """periodic: at the interval while there is traffic. adaptive: earlier when traffic pauses or consumers have
    caught up, for at most a tenth more entries, and later when no subscription would gain from a snapshot."""

    permissions: dict[Role, list[PermittedAction]] | None = None
    """Permissions of roles on the namespace at the start of a run: their actions by role. They are
    enforced in regions with authorization."""

    @model_validator(mode="after")
    def _check_retention(self) -> Self:
        if (self.retention_minutes == 0) != (self.retention_megabytes == 0):
            raise ValueError(
                "retention_minutes and retention_megabytes: one of them is 0 and the other one is not; both 0 keep "
                "nothing, -1 is no limit"
            )
        return self


class PulsarPeerPart(ConfigModel):
    """A real Pulsar cluster that may replicate into these regions."""

    token: str = Field(min_length=1)
    """The token of its brokers: brokerClientAuthenticationParameters (token:...), with the token plugin."""
    may: list[Literal["replicated-subscriptions", "unknown-markers"]] | None = None
    """Permissions besides sending messages. Default: none."""


class RegionPart(ConfigModel):
    """One region: one broker with one log."""

    host: AdvertisedHost | None = None
    """The address or name in lookup responses. Default: the listening address; if that is every address,
    the one that the client connected to."""
    listen: Host | None = None
    """The address that its ports listen on, or that its container publishes them to. Default: `host`, or
    127.0.0.1. Any other than a loopback address needs `security` with TLS and authentication, or `--insecure`.
    `--listen` overrides it."""
    service_port: Port = 0
    """Port for Pulsar clients. 0: pick a free one."""
    admin_port: Port = 0
    """Port for HTTP. 0: pick a free one."""
    service_port_tls: Port = 0
    """Port for Pulsar clients with TLS, if `security.tls` is set. 0: pick a free one. Pulsar's default is 6651."""
    admin_port_tls: Port = 0
    """Port for HTTPS, if `security.tls` is set. 0: pick a free one. Pulsar's default is 8443."""
    log: LogPart | None = None
    """Storage backend of this region, instead of the cluster's or the topology's."""
    settings: RegionSettings | None = None
    """Settings of this region, which override the cluster's and the topology's."""


class ClusterFile(ConfigModel):
    """One cluster: regions that share one configuration metadata store. `clusters/<name>.yaml`."""

    regions: dict[RegionName, RegionPart | None] = Field(min_length=1)
    """The regions by name."""
    log: LogPart | None = None
    """Storage backend of all regions of this cluster, instead of the topology's."""
    settings: RegionSettings | None = None
    """Settings of all regions of this cluster, which override the topology's."""


class TopologyFile(ConfigModel):
    """A geo-replicated Pulsar: clusters, links between their regions, tenants, namespaces. `topology.yaml`."""

    name: FileName = "geoemu"
    """Name of the topology in output."""
    runtime: Literal["process", "compose"] = "process"
    """Runtime of the regions: processes of this machine, or containers."""
    clusters: list[FileName] = Field(min_length=1)
    """The clusters; each has its own file, clusters/<name>.yaml beside this one."""
    shape: ShapeName = "mesh"
    """Which regions have a direct link, and the region in which clients publish. See Shapes."""
    links: LinksPart | None = None
    """Links between regions. Default: no latency."""
    tenants: list[TenantName] | None = None
    """Tenants. Default: public."""
    namespaces: dict[NamespaceName, NamespacePart | None] | None = None
    """Namespaces by tenant/namespace. Default: public/default, replicated between all regions."""
    pulsar_peers: dict[RegionName, PulsarPeerPart] | None = None
    """Real Pulsar clusters by cluster name. Only these and the regions of the run may replicate."""
    log: LogPart | None = None
    """Storage backend of all regions. Default: sqlite."""
    settings: RegionSettings | None = None
    """Settings of all regions."""
    compatibility: dict[str, str] | None = None
    """Named switches to upstream's behaviour where the proposals differ; see docs/PROTOCOL.md."""
    admin_hosts: list[Host] | None = None
    """Additional host names under which the regions' HTTP ports accept changes."""
    security: SecurityPart | None = None
    """TLS, authentication and authorization. Default: none."""
