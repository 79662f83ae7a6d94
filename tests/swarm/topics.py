"""Prefixes of topics that only the workload that uses them checks."""

TRANSACTED = "persistent://public/default/transacted-"
"""Topics with messages that are stored and must not be delivered."""
DELETED = "persistent://public/default/deleted-"
"""Topics that are deleted in one region while others have them: the common checks cannot derive the expected deliveries
from a log that is deleted and created again."""
