package geoemu.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.ContainerLaunchException;
import org.testcontainers.containers.PulsarContainer;
import org.testcontainers.utility.DockerImageName;

/** One region in place of a standalone Pulsar, started by the Pulsar module of Testcontainers. */
class StandaloneTest {

    private static final DockerImageName IMAGE =
            DockerImageName.parse(GeoRegions.IMAGE).asCompatibleSubstituteFor("apachepulsar/pulsar");

    @Test
    void aMessageIsSentAndReceived() throws Exception {
        try (PulsarContainer pulsar = new PulsarContainer(IMAGE)) {
            pulsar.start();
            try (var client = PulsarClient.builder().serviceUrl(pulsar.getPulsarBrokerUrl()).build();
                    var consumer = client.newConsumer(Schema.STRING).topic("orders").subscriptionName("billing").subscribe();
                    var producer = client.newProducer(Schema.STRING).topic("orders").create()) {
                producer.send("paid");
                assertEquals("paid", consumer.receive(10, TimeUnit.SECONDS).getValue());
            }
            try (var admin = PulsarAdmin.builder().serviceHttpUrl(pulsar.getHttpServiceUrl()).build()) {
                assertEquals(List.of("standalone"), admin.clusters().getClusters());
                admin.topics().createPartitionedTopic("persistent://public/default/parts", 3);
                assertEquals(3, admin.topics().getPartitionedTopicMetadata("persistent://public/default/parts").partitions);
            }
        }
    }

    @Test
    void settingsAndTransactionsApply() throws Exception {
        try (PulsarContainer pulsar = new PulsarContainer(IMAGE)
                .withEnv("PULSAR_PREFIX_clusterName", "tc-cluster")
                .withEnv("PULSAR_PREFIX_brokerDeduplicationEnabled", "true")
                .withTransactions()) {
            pulsar.start();
            try (var admin = PulsarAdmin.builder().serviceHttpUrl(pulsar.getHttpServiceUrl()).build()) {
                assertEquals("true", admin.brokers().getRuntimeConfigurations().get("brokerDeduplicationEnabled"));
                assertEquals(List.of("tc-cluster"), admin.clusters().getClusters());
            }
            try (var client = PulsarClient.builder().serviceUrl(pulsar.getPulsarBrokerUrl()).enableTransaction(true).build();
                    var consumer = client.newConsumer(Schema.STRING).topic("orders").subscriptionName("billing").subscribe();
                    var producer = client.newProducer(Schema.STRING).topic("orders").sendTimeout(0, TimeUnit.SECONDS).create()) {
                var transaction = client.newTransaction().build().get();
                producer.newMessage(transaction).value("first").send();
                transaction.commit().get();
                assertEquals("first", consumer.receive(10, TimeUnit.SECONDS).getValue());
            }
        }
    }

    @Test
    void theFunctionsWorkerIsRefused() {
        try (PulsarContainer pulsar = new PulsarContainer(IMAGE).withFunctionsWorker()) {
            Throwable failure = assertThrows(ContainerLaunchException.class, pulsar::start);
            var causes = new StringBuilder();
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                causes.append(cause).append('\n');
            }
            assertTrue(causes.toString().contains("Container exited with code 2"), causes::toString);
        }
    }
}
