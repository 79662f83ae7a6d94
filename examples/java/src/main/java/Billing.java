import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** A service as anybody would write it: reads orders where it runs, writes an invoice for each to the headquarters. */
public final class Billing {
    public static void main(String[] arguments) throws PulsarClientException {
        var orders =
                client("GEOEMU_SERVICE_URL")
                        .newConsumer()
                        .topic("orders")
                        .subscriptionName("billing")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .replicateSubscriptionState(true)
                        .subscribe();
        var invoices =
                client("GEOEMU_SERVICE_URL_EU_CENTRAL")
                        .newProducer()
                        .topic("invoices")
                        .sendTimeout(1, TimeUnit.SECONDS)
                        .create();
        while (true) {
            var order = orders.receive();
            invoice(order, invoices);
            orders.acknowledge(order);
        }
    }

    private static void invoice(Message<byte[]> order, Producer<byte[]> invoices) {
        while (true) {
            try {
                invoices.newMessage().key(order.getKey()).value(order.getData()).send();
                return;
            } catch (PulsarClientException problem) {
                System.err.println("once more: " + problem.getMessage());
            }
        }
    }

    private static PulsarClient client(String variable) throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(System.getenv(variable)).build();
    }
}
