"""Prefixes of topics that the common checks ignore: only the workload that uses such a topic checks it."""

TRANSACTED = "persistent://public/default/transacted-"
"""Prefix of topics with messages that are stored and must not be delivered."""
DELETED = "persistent://public/default/deleted-"
"""Prefix of topics that are deleted in one region while others have them. The common checks cannot derive the expected
deliveries from a log that is deleted and created again."""
