"""A service that reserves stock: it reads orders, writes a reservation for each, and acknowledges an order when its
reservation is stored. One instance works at a time; if its region is lost, an instance in another region continues
with the same replicated subscription.
"""

import threading

import pulsar

RECEIVE_MS = 200


class Reservations:
    """One instance, which works in the region of its client until `stop`."""

    def __init__(self, client: pulsar.Client, namespace: str) -> None:
        self._orders = client.subscribe(
            f"persistent://{namespace}/orders",
            "reservations",
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
            negative_ack_redelivery_delay_ms=100,
        )
        self._reservations = client.create_producer(
            f"persistent://{namespace}/reservations", send_timeout_millis=1_000
        )
        self._stopped = threading.Event()
        self._worker = threading.Thread(target=self._work)
        self._worker.start()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                order = self._orders.receive(RECEIVE_MS)
            except (
                pulsar.PulsarException
            ):  # no order for a moment, or the region is away: the client reconnects
                continue
            self._process(order)

    def _process(self, order: pulsar.Message) -> None:
        try:
            self._reservations.send(b"reserved: " + order.data(), partition_key=order.partition_key())
            self._orders.acknowledge(order)
        except pulsar.PulsarException:
            self._orders.negative_acknowledge(order)

    def __enter__(self) -> "Reservations":
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Finish the current order and end."""
        self._stopped.set()
        self._worker.join()
