"""Check relations between the parts of a topology. Each check reports its problems in the file that contains the
part."""

from __future__ import annotations

from collections.abc import Iterator

from emulator.config.compatibility import CHOICES, SWITCHES
from emulator.config.declared import (
    DeclaredTopology,
    SettingsLevel,
    directions,
    effective_settings,
    link_fields_of,
    namespaces_of,
    settings_levels,
    tenants_of,
)
from emulator.config.models import ALL, LinkException, LinkFields, LogPart, TopologyFile
from emulator.config.yaml_errors import KeyPath, one_of
from emulator.config.yaml_source import YamlFile
from emulator.model.values import TopicName
from emulator.net.addresses import LOOPBACK, is_wildcard


def check_relations(declared: DeclaredTopology, content: TopologyFile) -> None:
    """Report all problems between the valid parts of all files."""
    _check_shape(declared, content)
    _check_links(declared, content)
    _check_tenants(declared, content)
    _check_namespaces(declared, content)
    _check_compatibility(declared, content)
    _check_names_and_ports(declared)
    _check_logs(declared)
    _check_settings(declared)
    _check_metadata_sync(declared)
    _check_message_sizes(declared, content)
    _check_pulsar_peers(declared, content)


def _check_shape(declared: DeclaredTopology, content: TopologyFile) -> None:
    names = declared.region_names()
    if content.shape != "mesh" and len(names) == 1 and not declared.clusters_missing:
        declared.file.report(("shape",), f"must be mesh or omitted, because there is one region, {names[0]}")


def _check_links(declared: DeclaredTopology, content: TopologyFile) -> None:
    links = content.links
    if links and links.profile and links.defaults and links.defaults.profile:
        rule = (
            f"must be given once; links.profile is already on line {declared.file.line(('links', 'profile'))}"
        )
        declared.file.report(("links", "defaults", "profile"), rule)
    seen: dict[tuple[bool, str, str], KeyPath] = {}
    for path, exception in _link_exceptions(declared, content):
        if not _check_ends(declared, path, exception):
            continue
        keys = list(LinkFields.model_fields)
        if not link_fields_of(exception) and not any(
            declared.file.has_problem_at((*path, key)) for key in keys
        ):
            declared.file.report(path, f"must change something: give {one_of(keys)}")
        for source, target in directions(exception):
            key = (exception.between is not None, source, target)
            if key in seen:
                line = declared.file.line(seen[key])
                declared.file.report(
                    path, f"must be stated once; {source} to {target} is already on line {line}"
                )
                break
            seen[key] = path


def _link_exceptions(
    declared: DeclaredTopology, content: TopologyFile
) -> Iterator[tuple[KeyPath, LinkException]]:
    """Yield each exception with its path in the file."""
    exceptions = content.links and content.links.exceptions
    if not exceptions:
        return
    written = declared.file.values["links"]["exceptions"]
    indexes = [index for index, value in enumerate(written) if isinstance(value, dict)]
    for index, exception in zip(indexes, exceptions, strict=True):
        yield ("links", "exceptions", index), exception


def _check_ends(declared: DeclaredTopology, path: KeyPath, exception: LinkException) -> bool:
    """Return whether an exception names two different regions, in one of the two forms; report the problem if not."""
    file = declared.file
    ends = (exception.source, exception.target)
    both_ways, one_way = exception.between is not None, ends != (None, None)
    if both_ways == one_way or (one_way and None in ends):
        if not _has_problem_at_ends(file, path):
            file.report(path, "must contain either between: [a, b] or from: a and to: b")
        return False
    if exception.between is not None:
        ends_with_paths = [((*path, "between", index), name) for index, name in enumerate(exception.between)]
    else:
        ends_with_paths = [((*path, key), str(name)) for key, name in zip(("from", "to"), ends, strict=True)]
    if len(ends_with_paths) != 2:
        if not _has_problem_at_ends(file, path):
            file.report((*path, "between"), "must name two regions")
        return False
    known = [declared.check_region(end_path, name) for end_path, name in ends_with_paths]
    if not all(known):
        return False
    if ends_with_paths[0][1] == ends_with_paths[1][1]:
        file.report(ends_with_paths[1][0], "must be another region: there is no link from a region to itself")
        return False
    return True


def _has_problem_at_ends(file: YamlFile, path: KeyPath) -> bool:
    """Return whether a problem of the exception's regions is reported already."""
    return any(file.has_problem_at((*path, key)) for key in ("between", "from", "to"))


def _check_tenants(declared: DeclaredTopology, content: TopologyFile) -> None:
    if content.tenants is None:
        return
    seen: set[str] = set()
    for index, tenant in enumerate(declared.file.values["tenants"]):
        if tenant in content.tenants:
            if tenant in seen:
                declared.file.report(("tenants", index), "must be listed once")
            seen.add(tenant)


def _check_namespaces(declared: DeclaredTopology, content: TopologyFile) -> None:
    tenants = tenants_of(content)
    for name, part in (content.namespaces or {}).items():
        path = ("namespaces", name)
        tenant = name.split("/")[0]
        if tenant not in tenants:
            declared.file.report(path, f"must have its tenant {tenant} listed under tenants", about_key=True)
        regions = part.regions if part else ALL
        if part is not None and part.exclusive_home:
            declared.check_region((*path, "exclusive_home"), part.exclusive_home)
        for index, region in enumerate(() if regions == ALL else regions):
            region_path = (*path, "regions", index)
            if declared.check_region(region_path, region) and region in regions[:index]:
                declared.file.report(region_path, "must be listed once")


def _check_compatibility(declared: DeclaredTopology, content: TopologyFile) -> None:
    for switch, choice in (content.compatibility or {}).items():
        path = ("compatibility", switch)
        if switch not in SWITCHES:
            declared.file.report(
                path, f"is not a switch; there are {', '.join(SWITCHES)}", SWITCHES, about_key=True
            )
        elif choice not in CHOICES:
            declared.file.report(path, f"must be {one_of(CHOICES)}", CHOICES)


def _check_names_and_ports(declared: DeclaredTopology) -> None:
    names: dict[str, str] = {}
    ports: dict[int, list[tuple[str, str]]] = {}
    for cluster in declared.clusters:
        for name in cluster.written_names:
            if name in names:
                rule = f"must be unique; {names[name]} has a region of that name"
                cluster.file.report(("regions", name), rule, about_key=True)
            names.setdefault(name, cluster.file.name)
    for cluster, name, part in declared.regions():
        if any(cluster.file.has_problem_at(("regions", name, key)) for key in ("host", "listen")):
            continue
        address = part.listen or part.host or LOOPBACK
        for key in ("service_port", "admin_port", "service_port_tls", "admin_port_tls"):
            port = getattr(part, key)
            users = ports.setdefault(port, [])
            user = next((user for user, other in users if _overlap(address, other)), None)
            if port and user:
                cluster.file.report(("regions", name, key), f"must be an unused port; {user} uses it")
            users.append((f"{key} of {name}", address))


def _overlap(one: str, other: str) -> bool:
    """Return whether two listeners on one port of these addresses would collide."""
    if is_wildcard(one) or is_wildcard(other):
        return True
    return _numeric(one) == _numeric(other)


def _numeric(host: str) -> str:
    return LOOPBACK if host == "localhost" else host


def _check_logs(declared: DeclaredTopology) -> None:
    if declared.content:
        _check_log(declared.file, ("log",), declared.content.log)
    for cluster in declared.clusters:
        _check_log(cluster.file, ("log",), cluster.content.log if cluster.content else None)
    for cluster, name, part in declared.regions():
        _check_log(cluster.file, ("regions", name, "log"), part.log)


def _check_log(file: YamlFile, path: KeyPath, log: LogPart | None) -> None:
    if log is None:
        return
    written = log.model_fields_set
    if log.backend != "kafka":
        for key in sorted({"bootstrap_servers", "options"} & written):
            file.report((*path, key), f"must not be given with backend {log.backend}; only kafka uses it")


def _check_settings(declared: DeclaredTopology) -> None:
    """Report regions whose first reconnect backoff is above its maximum, whichever files set the two."""
    low, high = "peer_reconnect_backoff_ms", "peer_reconnect_backoff_ms_max"
    for levels in settings_levels(declared).values():
        settings = effective_settings(levels)
        if getattr(settings, low) <= getattr(settings, high):
            continue
        file, path, key = next(
            (file, path, key)
            for file, path, written in levels
            for key in (low, high)
            if written and key in written.model_fields_set
        )
        rule = f"{low} ({getattr(settings, low)}) must not be more than {high} ({getattr(settings, high)})"
        file.report((*path, key), rule)


def _check_metadata_sync(declared: DeclaredTopology) -> None:
    """Report an event topic that is invalid, differs between regions, or belongs to the local store."""
    topics: dict[str, str] = {}
    reported: set[tuple[str, KeyPath]] = set()

    def report(file: YamlFile, path: KeyPath, rule: str) -> None:
        if rule and (file.name, path) not in reported:
            reported.add((file.name, path))
            file.report(path, rule)

    for region, levels in settings_levels(declared).items():
        topic = topics[region] = effective_settings(levels).configuration_metadata_sync_event_topic
        for file, path, written in levels:
            if written is not None and getattr(written, _LOCAL_EVENT_TOPIC):
                report(file, (*path, _LOCAL_EVENT_TOPIC), LOCAL_STORE_RULE)
            if written is not None and _EVENT_TOPIC in written.model_fields_set:
                report(
                    file,
                    (*path, _EVENT_TOPIC),
                    _event_topic_violation(topic) or _common_topic_violation(topics, topic),
                )


def _common_topic_violation(topics: dict[str, str], topic: str) -> str:
    other = next((name for name, other_topic in topics.items() if other_topic != topic), None)
    return "" if other is None else f"must be the same everywhere; {other} has {topics[other] or 'none'}"


_LOCAL_EVENT_TOPIC = "metadata_sync_event_topic"
_EVENT_TOPIC = "configuration_metadata_sync_event_topic"
LOCAL_STORE_RULE = (
    "must be omitted: it would share cursors and positions, which are local to a region; "
    "configuration_metadata_sync_event_topic shares tenants, namespaces and policies"
)


def _event_topic_violation(topic: str) -> str:
    """Return the rule that an event topic violates; empty: none."""
    try:
        parsed = TopicName.parse(topic) if topic else None
    except ValueError as problem:
        return f"must name a topic: {problem}"
    if parsed is not None and (parsed.domain != "persistent" or parsed.partition_index >= 0):
        return "must name a persistent topic without partitions"
    return ""


def _check_message_sizes(declared: DeclaredTopology, content: TopologyFile) -> None:
    """Report regions of a namespace with different maximum message sizes: replication of a topic would stop at the
    first entry that is too large for a remote region."""
    key = "max_message_bytes"
    levels = settings_levels(declared)
    maxima = {name: effective_settings(of_region).max_message_bytes for name, of_region in levels.items()}
    reported: set[tuple[str, KeyPath]] = set()
    for namespace in namespaces_of(content, list(maxima)):
        known = [name for name in namespace.regions if name in maxima]
        for name in known:
            other = next((one for one in known if maxima[one] < maxima[name]), None)
            if other is None:
                continue
            file, path = (
                _find_setting(key, levels[name]) or _find_setting(key, levels[other]) or (declared.file, ())
            )
            if (file.name, path) not in reported:
                reported.add((file.name, path))
                rule = (
                    f"max_message_bytes must be the same in regions that replicate to each other: {name} has "
                    f"{maxima[name]}, {other} has {maxima[other]} ({namespace.name})"
                )
                file.report(path, rule)


def _find_setting(key: str, levels: list[SettingsLevel]) -> tuple[YamlFile, KeyPath] | None:
    """Return the file and path of a region's effective setting; None: it is the default."""
    for file, path, written in levels:
        if written and key in written.model_fields_set:
            return file, (*path, key)
    return None


def _check_pulsar_peers(declared: DeclaredTopology, content: TopologyFile) -> None:
    tokens: dict[str, str] = {}
    for name, peer in (content.pulsar_peers or {}).items():
        if name in declared.region_names():
            rule = "must be unique; a region has this name"
            declared.file.report(("pulsar_peers", name), rule, about_key=True)
        if peer.token in tokens:
            rule = f"must be unique; {tokens[peer.token]} has the same token"
            declared.file.report(("pulsar_peers", name, "token"), rule)
        tokens.setdefault(peer.token, name)
