import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.ServiceUrlProvider;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.AutoClusterFailover;

/** The same service, whose client goes to another region by itself when its own is away, and comes back by itself. */
public final class BillingAnywhere {
    public static void main(String[] arguments) throws PulsarClientException {
        var client = PulsarClient.builder().serviceUrlProvider(anywhere()).build();
        var orders =
                client.newConsumer()
                        .topic("orders")
                        .subscriptionName("billing")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .replicateSubscriptionState(true)
                        .subscribe();
        var invoices = client.newProducer().topic("invoices").sendTimeout(0, TimeUnit.SECONDS).create();
        while (true) {
            var order = orders.receive();
            invoices.newMessage().key(order.getKey()).value(order.getData()).send();
            orders.acknowledge(order);
        }
    }

    private static ServiceUrlProvider anywhere() {
        return AutoClusterFailover.builder()
                .primary(System.getenv("GEOEMU_SERVICE_URL_US_EAST"))
                .secondary(List.of(System.getenv("GEOEMU_SERVICE_URL_US_WEST")))
                .checkInterval(500, TimeUnit.MILLISECONDS)
                .failoverDelay(1, TimeUnit.SECONDS)
                .switchBackDelay(2, TimeUnit.SECONDS)
                .build();
    }
}
