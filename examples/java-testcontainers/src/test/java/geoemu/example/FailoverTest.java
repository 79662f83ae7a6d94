package geoemu.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A service that consumes in another region loses no message when links are cut and its region is killed. */
class FailoverTest {

    private static final String EAST = "us-east";
    private static final String CENTRAL = "eu-central";

    @RegisterExtension
    static final GeoRegions geo = new GeoRegions(EAST, CENTRAL);

    @Test
    void aMessageSurvivesACutAndTheKillOfItsRegion() throws Exception {
        try (var east = client(EAST); var central = client(CENTRAL)) {
            var consumer = central.newConsumer(Schema.STRING).topic("orders").subscriptionName("billing").subscribe();
            var producer = east.newProducer(Schema.STRING).topic("orders").create();
            producer.send("before the cut");
            assertEquals("before the cut", receive(consumer));
            geo.cut(EAST, CENTRAL);
            producer.send("during the cut");
            assertNull(consumer.receive(1, TimeUnit.SECONDS));
            geo.kill(EAST);
            geo.start(EAST);
            geo.heal();
            assertEquals("during the cut", receive(consumer));
        }
    }

    @Test
    void aConsumerContinuesInTheRegionThatIsLeft() throws Exception {
        try (var central = client(CENTRAL)) {
            var consumer = central.newConsumer(Schema.STRING).topic("invoices").subscriptionName("billing").subscribe();
            geo.kill(EAST);
            central.newProducer(Schema.STRING).topic("invoices").create().send("2");
            assertEquals("2", receive(consumer));
        }
    }

    private static PulsarClient client(String region) throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(geo.serviceUrl(region)).build();
    }

    private static String receive(Consumer<String> consumer) throws PulsarClientException {
        var message = consumer.receive(60, TimeUnit.SECONDS);
        consumer.acknowledge(message);
        return message.getValue();
    }
}
