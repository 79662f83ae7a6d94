package geoemu.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException.NotAuthorizedException;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException.AuthorizationException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.PulsarContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/** A region with tokens and authorization, configured by Pulsar's own settings. */
class SecuredTest {

    private static final DockerImageName IMAGE =
            DockerImageName.parse(GeoRegions.IMAGE).asCompatibleSubstituteFor("apachepulsar/pulsar");
    private static final String KEY = "/pulsar/secret.key";

    /** The module waits for a response without a token, which is refused: this class waits for the log. */
    static final class SecuredPulsar extends PulsarContainer {
        SecuredPulsar() {
            super(IMAGE);
            withCopyToContainer(Transferable.of("a key with 32 bytes or more, of this test"), KEY);
            withEnv("PULSAR_PREFIX_authenticationEnabled", "true");
            withEnv("PULSAR_PREFIX_authenticationProviders",
                    "org.apache.pulsar.broker.authentication.AuthenticationProviderToken");
            withEnv("PULSAR_PREFIX_tokenSecretKey", "file://" + KEY);
            withEnv("PULSAR_PREFIX_authorizationEnabled", "true");
            withEnv("PULSAR_PREFIX_superUserRoles", "admin");
        }

        @Override
        protected void configure() {
            super.configure();
            waitingFor(Wait.forLogMessage(".*Successfully updated the policies on namespace public/default.*", 1));
        }

        String token(String role) throws Exception {
            return execInContainer("/pulsar/bin/pulsar", "tokens", "create", "--secret-key", KEY, "--subject", role)
                    .getStdout().strip();
        }
    }

    @Test
    void aRoleMayDoWhatWasGranted() throws Exception {
        try (SecuredPulsar pulsar = new SecuredPulsar()) {
            pulsar.start();
            try (var admin = PulsarAdmin.builder().serviceHttpUrl(pulsar.getHttpServiceUrl()).build()) {
                assertThrows(NotAuthorizedException.class, () -> admin.tenants().getTenants());
            }
            var app = AuthenticationFactory.token(pulsar.token("app"));
            try (var client = PulsarClient.builder().serviceUrl(pulsar.getPulsarBrokerUrl()).authentication(app).build()) {
                assertThrows(AuthorizationException.class, () -> client.newProducer().topic("orders").create());
                try (var admin = PulsarAdmin.builder().serviceHttpUrl(pulsar.getHttpServiceUrl())
                        .authentication(AuthenticationFactory.token(pulsar.token("admin"))).build()) {
                    admin.namespaces().grantPermissionOnNamespace("public/default", "app",
                            Set.of(AuthAction.produce, AuthAction.consume));
                }
                try (var consumer = client.newConsumer(Schema.STRING).topic("orders").subscriptionName("billing").subscribe();
                        var producer = client.newProducer(Schema.STRING).topic("orders").create()) {
                    producer.send("paid");
                    assertEquals("paid", consumer.receive(10, TimeUnit.SECONDS).getValue());
                }
            }
        }
    }
}
