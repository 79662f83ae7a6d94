"""One start of a region on its store: the check of the store's format, and producer names unused by earlier starts."""

from __future__ import annotations

from emulator.errors import StorageDamaged, StorageError
from emulator.model.stored_keys import FORMAT_KEY, STARTS_KEY, STORE_FORMAT
from emulator.storage.contract import Store


class Incarnation:
    """One start of a region. The region calls `begin` before it uses the store otherwise."""

    def __init__(self, region: str, store: Store) -> None:
        self._region = region
        self._store = store
        self.starts = 0
        """Number of starts before this one."""
        self._producer_names = 0

    async def begin(self) -> None:
        """Check the store's format, or write it to a new store, and count this start. StorageError for a format that
        this program cannot read, and when the store fails."""
        await self._check_format()
        stored = self._store.get(STARTS_KEY.text)
        if stored is not None and not stored.value.isdigit():
            raise StorageDamaged(f"{STARTS_KEY.text} is damaged ({stored.value!r} is no number)")
        self.starts = int(stored.value) + 1 if stored else 0
        await self._store.put(STARTS_KEY.text, str(self.starts).encode())

    async def _check_format(self) -> None:
        stored = self._store.get(FORMAT_KEY.text)
        if stored is None and self._store.get(STARTS_KEY.text) is None:
            await self._store.put(FORMAT_KEY.text, str(STORE_FORMAT).encode())
            return
        found = stored.value.decode() if stored is not None else "1"
        if found != str(STORE_FORMAT):
            raise StorageError(
                f"the store of region {self._region} has format {found}, this geoemu reads format "
                f"{STORE_FORMAT}: start a new run, or use the geoemu that wrote it",
                definite=True,
            )

    def new_producer_name(self) -> str:
        """Return a name that is unique over all regions and restarts, because messages are deduplicated by producer
        name in all regions."""
        self._producer_names += 1
        return f"{self._region}-{self.starts}-{self._producer_names}"
