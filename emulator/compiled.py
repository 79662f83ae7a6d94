"""Which modules of a region may be compiled, and whether the compiled ones are those of the present sources.

`scripts/compile.py` compiles MODULES with mypyc: an extension module beside each source, and one library with the code
of all. The name of the library contains the digest of the sources, so that a build of other sources is recognised:
Python imports an extension module whatever its source says.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

MODULES = (
    "core/access/machine.py",
    "core/access/types.py",
    "core/access/wait_queue.py",
    "core/admission.py",
    "core/cursor/cursor.py",
    "core/cursor/id_set.py",
    "core/cursor/stored_format.py",
    "core/policies/topic_policies.py",
    "core/replication/progress.py",
    "core/topic/deduplication.py",
    "core/topic/entry_facts.py",
    "core/topic/state.py",
    "core/topic/visibility.py",
    "model/values.py",
    "wire/batches.py",
    "wire/codec_hot/ack_groups.py",
    "wire/codec_hot/consuming.py",
    "wire/codec_hot/message_runs.py",
    "wire/codec_hot/opening.py",
    "wire/codec_hot/publishing.py",
    "wire/codec_hot/replica_groups.py",
    "wire/codec_hot/send_groups.py",
    "wire/codec_hot/send_runs.py",
    "wire/codec_hot/transactions.py",
    "wire/entry.py",
    "wire/entry_layout.py",
    "wire/frames.py",
    "wire/message_metadata.py",
    "wire/protobuf.py",
    "wire/source_position.py",
)
"""Sources, relative to this package. Those in which publishing, dispatch and replication spend their time, and the
rules and requests with which topics are opened; others gain little, or cannot be compiled (docs/decisions/0032)."""
LIBRARY = "compiled_"
"""Beginning of the library's name, before the digest."""
LIBRARY_END = "__mypyc" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
"""What mypyc appends: the build of another Python has another suffix, and is not imported."""


def sources_digest(package: Path) -> str:
    """Return a digest of the sources of MODULES in a folder of the package."""
    digest = hashlib.sha256()
    for module in MODULES:
        source = (package / module).read_bytes()
        digest.update(f"{module} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:16]


def compiled_digest(package: Path) -> str | None:
    """Return the digest of the sources of which this Python imports compiled modules; None: of none."""
    for library in package.glob(LIBRARY + "*" + LIBRARY_END):
        return library.name.removeprefix(LIBRARY).removesuffix(LIBRARY_END)
    return None


def problem_of_build(package: Path = Path(__file__).parent) -> str | None:
    """Return what to type if compiled modules are of other sources than those beside them; otherwise None."""
    digest = compiled_digest(package)
    if digest is None or digest == sources_digest(package):
        return None
    return (
        f"the compiled modules in {package} are not of its present sources: `make fast` compiles these, `make slow` "
        "removes the compiled modules"
    )
