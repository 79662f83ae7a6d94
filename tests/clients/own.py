"""Driver of geoemu's own client, with the commands of drivers/driver.py, in a simulated program.

The program can be killed and frozen like any other driver. The address 127.0.0.1 leads to the host of the regions.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

from emulator.client import (
    EARLIEST,
    LATEST,
    AccessMode,
    Batching,
    Client,
    ClientError,
    ClientSettings,
    Compression,
    Consumer,
    ConsumerType,
    DeadLetters,
    Decryption,
    Encryption,
    InitialPosition,
    Message,
    MessageId,
    Producer,
    Reader,
    Schema,
    SchemaType,
    TableView,
    Transaction,
)
from emulator.model.values import TopicName
from emulator.net.credentials import Credentials
from emulator.simulation.host import DRIVER, Host, HostDied
from emulator.simulation.network import HostNetwork
from emulator.simulation.simulation import Simulation
from tests.clients.driving import Failed

Arguments = dict[str, str]
ACCESS = {mode.label: mode for mode in AccessMode}
TYPES = {
    "Exclusive": ConsumerType.EXCLUSIVE,
    "Shared": ConsumerType.SHARED,
    "KeyShared": ConsumerType.KEY_SHARED,
    "Failover": ConsumerType.FAILOVER,
}
ENDS = {"earliest": EARLIEST, "latest": LATEST}


def encryption_in(folder: Path) -> Encryption:
    """Return an encryption with the public key of this directory, under the name that all drivers use."""
    return Encryption({"key": (folder / "public.pem").read_bytes()})


def decryption_in(folder: Path) -> Decryption:
    return Decryption({"key": (folder / "private.pem").read_bytes()})


class NearNetwork:
    """A network that maps 127.0.0.1 to the simulated host of the regions."""

    def __init__(self, network: HostNetwork) -> None:
        self._network = network
        self.listen = network.listen

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self._network.connect(protocol_factory, DRIVER if host == "127.0.0.1" else host, port)


class OwnDriver:
    """A simulated program with geoemu's client; implements driving.Program."""

    def __init__(self, simulation: Simulation) -> None:
        name = f"program-{len(simulation.hosts)}"
        self._host = simulation.host(name, DRIVER)
        self._doing = _Doing(self._host)

    def ask(self, verb: str, **arguments: object) -> asyncio.Future[dict[str, str]]:
        given = {name: str(value) for name, value in arguments.items() if value is not None}
        answer = asyncio.ensure_future(self._request(verb, given))
        answer.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # a caller may ignore the response
        return answer

    async def _request(self, verb: str, given: Arguments) -> dict[str, str]:
        try:
            return await self._host.ask(self._doing.do(verb, given))
        except HostDied:
            raise Failed("Gone", "the program has ended") from None
        except ClientError as refusal:
            name = type(refusal).__name__ if refusal.code is None else refusal.code.name
            raise Failed(name, str(refusal)) from None
        except TimeoutError:
            raise Failed("Timeout", f"{verb} did not end in time") from None

    def kill(self) -> None:
        self._host.kill()

    def freeze(self) -> None:
        self._host.pause()

    async def end(self) -> None:
        self._host.kill()


class _Doing:
    """Executes the commands inside the simulated program."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._clients: dict[str, Client] = {}
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        """Consumers and readers, by key."""
        self._tables: dict[str, TableView] = {}
        self._transactions: dict[str, Transaction] = {}
        self._fields: dict[str, dict[str, str | None]] = {}
        """Schemas of producers and consumers, by key: field -> default."""
        self._ids: dict[str, MessageId] = {}
        """Ids of the messages that this driver published, by payload."""

    async def do(self, verb: str, of: Arguments) -> dict[str, str]:
        done: Awaitable[dict[str, str] | None] = getattr(self, f"_{verb}")(of)
        return await done or {}

    async def _client(self, of: Arguments) -> None:
        self._clients[of["key"]] = Client(
            of["url"],
            network=NearNetwork(self._host.network),
            settings=ClientSettings(
                operation_timeout_seconds=int(of["timeout_ms"]) / 1000,
                send_timeout_seconds=int(of.get("send_timeout_ms", "30000")) / 1000,
                keep_alive_interval_seconds=int(of.get("keep_alive_ms", "30000")) / 1000,
                topics_interval_seconds=1.0,
            ),
            chance=self._host.random,
            wall_clock_ms=self._host.wall_clock_ms,
            credentials=Credentials(token=of.get("token_file", ""), basic=of.get("basic_file", "")),
        )

    # Publishing.

    async def _producer(self, of: Arguments) -> dict[str, str]:
        batch = Batching(messages_max=int(of["batch"]), delay_ms_max=60_000) if "batch" in of else None
        self._producers[of["key"]] = producer = await self._clients[of["client"]].producer(
            of["topic"],
            name=of.get("name"),
            access_mode=ACCESS[of.get("access", "Shared")],
            batching=batch,
            compression=Compression[of.get("compression", "NONE")],
            chunking=of.get("chunking") == "1",
            encryption=encryption_in(Path(of["keys"])) if "keys" in of else None,
            schema=self._schema(of),
        )
        return {"name": producer.name}

    async def _send(self, of: Arguments) -> None:
        payload = self._written(of["key"], of["payload"])
        delay_ms = int(of["delay_ms"]) if "delay_ms" in of else None
        self._ids[of["payload"]] = await self._producers[of["key"]].send(
            payload.encode(),
            key=of.get("message_key"),
            deliver_at_ms=None if delay_ms is None else self._host.wall_clock_ms() + delay_ms,
            transaction=self._transactions[of["transaction"]] if "transaction" in of else None,
        )

    async def _send_batch(self, of: Arguments) -> None:
        """Send `payloads`, whose number is the producer's batch size, as one batch."""
        producer = self._producers[of["key"]]
        sent = {payload: producer.send_nowait(payload.encode()) for payload in of["payloads"].split(",")}
        await producer.flush()
        for payload, receipt in sent.items():
            self._ids[payload] = await receipt

    async def _send_bytes(self, of: Arguments) -> dict[str, str]:
        payload = hashlib.shake_128(of["seed"].encode()).digest(int(of["size"]))
        await self._producers[of["key"]].send(payload, key=of.get("message_key"))
        return {"digest": hashlib.sha256(payload).hexdigest()}

    async def _partitions(self, of: Arguments) -> dict[str, str]:
        return {"count": str(await self._clients[of["client"]].partitions_of(of["topic"]) or 1)}

    # Consuming.

    async def _subscribe(self, of: Arguments) -> None:
        position = InitialPosition.LATEST if of.get("from") == "latest" else InitialPosition.EARLIEST
        topic = re.compile(of["pattern"].removeprefix("persistent://")) if "pattern" in of else of["topic"]
        self._consumers[of["key"]] = await self._clients[of["client"]].subscribe(
            topic,
            of["subscription"],
            type_=TYPES[of.get("type", "Exclusive")],
            initial_position=position,
            receiver_queue_size=int(of.get("queue", "1000")),
            start_paused=of.get("paused") == "yes",
            negative_ack_delay_seconds=0.1,
            dead_letters=self._letters(of),
            decryption=decryption_in(Path(of["keys"])) if "keys" in of else None,
            schema=self._schema(of),
        )

    def _letters(self, of: Arguments) -> DeadLetters | None:
        if "dead_letters" not in of:
            return None
        return DeadLetters(
            int(of["redeliveries"]),
            of["dead_letters"],
            of["first_subscription"],
            retries="retries" in of,
            retry_topic=of.get("retries"),
        )

    async def _receive(self, of: Arguments) -> dict[str, str]:
        """Receive one message and return its fields. `then`: acknowledge, give back (negatively), put off (reconsume
        later), otherwise none of them."""
        consumer = self._consumers[of["key"]]
        message = await self._next(of)
        then = of.get("then", "acknowledge")
        if "transaction" in of:
            await consumer.acknowledge(message, transaction=self._transactions[of["transaction"]])
        elif then == "acknowledge":
            await consumer.acknowledge(message, confirmed=True)
        elif then == "give back":
            consumer.negative_acknowledge(message)
        elif then == "put off":
            await consumer.reconsume_later(message, 0.1)
        if of["key"] in self._fields:
            return self._read_by(self._fields[of["key"]], message)
        return {
            "payload": message.payload.decode(),
            "topic": str(TopicName.parse(message.topic)),
            "key": message.key or "",
            "count": str(message.redelivery_count),
        }

    async def _next(self, of: Arguments) -> Message:
        return await asyncio.wait_for(self._consumers[of["key"]].receive(), int(of["timeout_ms"]) / 1000)

    async def _receive_bytes(self, of: Arguments) -> dict[str, str]:
        message = await self._next(of)
        await self._consumers[of["key"]].acknowledge(message)
        return {"digest": hashlib.sha256(message.payload).hexdigest()}

    async def _reader(self, of: Arguments) -> None:
        self._consumers[of["key"]] = await self._clients[of["client"]].reader(
            of["topic"],
            self._place(of["start"]),
            inclusive=of.get("inclusive") == "yes",
            read_compacted=of.get("compacted") == "yes",
        )

    async def _available(self, of: Arguments) -> dict[str, str]:
        return {"answer": "yes" if await self._reading(of).has_message() else "no"}

    async def _read(self, of: Arguments) -> dict[str, str]:
        return {"payload": (await self._next(of)).payload.decode()}

    async def _read_compacted(self, of: Arguments) -> dict[str, str]:
        """Return the key and value of every message of the compacted topic."""
        reader = await self._clients[of["client"]].reader(of["topic"], EARLIEST, read_compacted=True)
        found = []
        while await reader.has_message():
            message = await reader.receive()
            found.append(f"{message.key}:{message.payload.decode()}")
        await reader.close()
        return {"messages": ",".join(found)}

    async def _seek(self, of: Arguments) -> None:
        target = int(of["time_ms"]) if "time_ms" in of else self._place(of["place"])
        await self._consumers[of["key"]].seek(target)

    def _reading(self, of: Arguments) -> Reader:
        reader = self._consumers[of["key"]]
        assert isinstance(reader, Reader)
        return reader

    def _place(self, word: str) -> MessageId:
        return ENDS[word] if word in ENDS else self._ids[word]

    async def _resume(self, of: Arguments) -> None:
        self._consumers[of["key"]].resume()

    async def _table(self, of: Arguments) -> dict[str, str]:
        """Return the entries of a new table view, sorted by key."""
        view = await self._clients[of["client"]].table_view(of["topic"])
        found = _entries_of(view)
        await view.close()
        return found

    async def _open_table(self, of: Arguments) -> None:
        """Open a table view that stays open and follows its topic."""
        self._tables[of["key"]] = await self._clients[of["client"]].table_view(of["topic"])

    async def _entries(self, of: Arguments) -> dict[str, str]:
        await self._tables[of["key"]].refresh()
        return _entries_of(self._tables[of["key"]])

    async def _close(self, of: Arguments) -> None:
        made: Producer | Consumer = (
            self._producers.pop(of["key"]) if of["key"] in self._producers else self._consumers.pop(of["key"])
        )
        await made.close()

    # Transactions.

    async def _begin(self, of: Arguments) -> dict[str, str]:
        begun = await self._clients[of["client"]].new_transaction(int(of["timeout_ms"]) / 1000)
        self._transactions[of["key"]] = begun
        return {"most": str(begun.id.most), "least": str(begun.id.least)}

    async def _commit(self, of: Arguments) -> None:
        await self._transactions[of["key"]].commit()

    async def _abort(self, of: Arguments) -> None:
        await self._transactions[of["key"]].abort()

    # Schemas: a record of strings, as JSON. geoemu's client registers schemas with the region; the application encodes
    # and decodes payloads.

    def _schema(self, of: Arguments) -> Schema | None:
        if "fields" not in of:
            return None
        fields = self._fields[of["key"]] = dict(_field(text) for text in of["fields"].split(","))
        described = [
            {"name": name, "type": "string"} | ({} if default is None else {"default": default})
            for name, default in fields.items()
        ]
        record = {"type": "record", "name": "Order", "fields": described}
        return Schema(SchemaType.JSON, json.dumps(record).encode())

    def _written(self, key: str, text: str) -> str:
        fields = self._fields.get(key)
        return text if fields is None else json.dumps(dict.fromkeys(fields, text))

    def _read_by(self, fields: dict[str, str | None], message: Message) -> dict[str, str]:
        content = {name: text for name, text in fields.items() if text is not None}
        content |= {name: text for name, text in json.loads(message.payload).items() if name in fields}
        return content | {"version": str(int.from_bytes(message.schema_version, "big"))}


def _entries_of(view: TableView) -> dict[str, str]:
    return {"entries": ",".join(sorted(f"{key}:{value.decode()}" for key, value in view.items()))}


def _field(text: str) -> tuple[str, str | None]:
    name, has_default, default = text.partition("=")
    return name, default if has_default else None
