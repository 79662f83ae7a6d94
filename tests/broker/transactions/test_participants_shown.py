"""What operators see of a transaction at its topics and subscriptions."""

from __future__ import annotations

from typing import Any

from emulator.client import Client, InitialPosition
from tests.broker.admin.served import served
from tests.broker.transactions.test_operators import V3, play

OF_S = "public/default/orders/s"


def test_what_a_transaction_acknowledged_is_shown_at_its_subscription() -> None:
    async def read_and_hold(client: Client) -> Any:
        producer = await client.producer("orders")
        for number in range(3):
            await producer.send(b"%d" % number)
        consumer = await client.subscribe("orders", "s", initial_position=InitialPosition.EARLIEST)
        transaction = await client.new_transaction(timeout_seconds=60)
        for _ in range(2):
            await consumer.acknowledge(await consumer.receive(), transaction=transaction)
        return transaction

    with served() as at:
        transaction = play(at, read_and_hold)
        most, least = transaction.id
        stats = at.get(f"{V3}/pendingAckStats/{OF_S}")
        assert (stats["ongoingTransactions"], stats["heldEntries"]) == ([transaction.id.text], 2)
        held = at.get(f"{V3}/transactionInPendingAckStats/{OF_S}/{most}/{least}")
        assert held == {"cumulativeAckPosition": None, "individualAcks": 2}
        assert "geoemu_txn_pending_ack_entries" in at.ask("GET", "/metrics").body.decode()
        assert at.ask("GET", f"{V3}/pendingAckStats/public/default/orders/other").status == 404
        assert at.ask("GET", f"{V3}/transactionInPendingAckStats/{OF_S}/{most}/{least + 1}").status == 404
