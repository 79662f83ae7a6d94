"""The state of a transaction in the stats of its topics and subscriptions."""

from __future__ import annotations

from typing import Any

from emulator.client import Client, InitialPosition
from tests.broker.admin.served import served
from tests.broker.transactions.test_admin import V3, play

OF_S = "public/default/orders/s"


def test_pending_acknowledgements_of_a_transaction_are_shown_at_their_subscription() -> None:
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
        ledger = at.get("/admin/v2/persistent/public/default/orders/lastMessageId")["ledgerId"]
        position = f"{V3}/positionStatsInPendingAck/{OF_S}/{ledger}"
        states = [at.get(f"{position}/{entry}")["state"] for entry in range(4)]
        assert states == ["PendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition"]
        assert at.get(f"{position}/2?batchIndex=999999999999")["state"] == "NotInPendingAck"
        assert at.ask("GET", f"{position}/x").status == 400
        assert at.get(f"{V3}/pendingAckInternalStats/{OF_S}") == {"pendingAckLogStats": None}
        assert at.get(f"{V3}/transactionBufferInternalStats/public/default/orders") == {"snapshotType": None}
        assert "geoemu_txn_pending_ack_entries" in at.ask("GET", "/metrics").body.decode()
        assert at.ask("GET", f"{V3}/pendingAckStats/public/default/orders/other").status == 404
        assert at.ask("GET", f"{V3}/transactionInPendingAckStats/{OF_S}/{most}/{least + 1}").status == 404
