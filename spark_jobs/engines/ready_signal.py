"""The word of whoever started us to be warm in time: a line, once there is something to verify.

If it closes our standard input instead, it is gone or needs us no more. A Spark that is just starting would notice only
when it has started, which takes a minute on a busy machine; so all ends at once, and Java with us.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from spark_jobs.verdict import EXIT_CODES


class ReadySignal:
    """Listens from the beginning on. Made in the main thread."""

    def __init__(self) -> None:
        self._given = threading.Event()
        signal.signal(signal.SIGUSR1, _end)
        threading.Thread(target=self._listen, daemon=True).start()

    def is_given(self) -> bool:
        return self._given.is_set()

    def wait(self) -> None:
        """Returns when told to go on. Otherwise this program ends."""
        self._given.wait()

    def _listen(self) -> None:
        if sys.stdin.readline():
            self._given.set()
        else:
            os.kill(os.getpid(), signal.SIGUSR1)


def _end(*_: object) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if os.getpgrp() == os.getpid():
        # Whom we started and nobody else; we are busy ending by ourselves.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    sys.exit(EXIT_CODES["unknown"])
