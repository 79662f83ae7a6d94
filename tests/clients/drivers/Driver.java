import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** The Java client as a driver; driver.py tells the protocol. */
public final class Driver {
    private static final Map<String, SubscriptionType> TYPES =
            Map.of(
                    "Exclusive", SubscriptionType.Exclusive,
                    "Shared", SubscriptionType.Shared,
                    "KeyShared", SubscriptionType.Key_Shared);
    private static final Map<String, PulsarClient> clients = new ConcurrentHashMap<>();
    private static final Map<String, Producer<byte[]>> producers = new ConcurrentHashMap<>();
    private static final Map<String, Consumer<byte[]>> consumers = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = line.split("\t");
            var of = new HashMap<String, String>();
            for (var i = 2; i < words.length; i++) {
                var pair = words[i].split("=", 2);
                of.put(pair[0], pair[1]);
            }
            var thread = new Thread(() -> answer(words[0], words[1], of));
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    private static void answer(String number, String verb, Map<String, String> of) {
        String answer;
        try {
            answer = "ok" + carryOut(verb, of);
        } catch (PulsarClientException problem) {
            var name = problem.getClass().getSimpleName().replaceAll("Exception$", "");
            answer = "error\t" + name + "\t" + String.valueOf(problem.getMessage()).replaceAll("\\s+", " ");
        }
        synchronized (System.out) {
            System.out.println(number + "\t" + answer);
            System.out.flush();
        }
    }

    private static String carryOut(String verb, Map<String, String> of) throws PulsarClientException {
        var key = of.get("key");
        switch (verb) {
            case "client" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                clients.put(
                        key,
                        PulsarClient.builder()
                                .serviceUrl(of.get("url"))
                                .operationTimeout(milliseconds, TimeUnit.MILLISECONDS)
                                .build());
            }
            case "producer" -> {
                var milliseconds = Integer.parseInt(of.getOrDefault("send_timeout_ms", "30000"));
                var builder =
                        clients.get(of.get("client"))
                                .newProducer()
                                .topic(of.get("topic"))
                                .accessMode(ProducerAccessMode.valueOf(of.getOrDefault("access", "Shared")))
                                .sendTimeout(milliseconds, TimeUnit.MILLISECONDS);
                if (of.containsKey("name")) {
                    builder.producerName(of.get("name"));
                }
                producers.put(key, builder.create());
                return "\tname=" + producers.get(key).getProducerName();
            }
            case "send" -> {
                var message = producers.get(key).newMessage();
                if (of.containsKey("message_key")) {
                    message.key(of.get("message_key"));
                }
                message.value(of.get("payload").getBytes(StandardCharsets.UTF_8)).send();
            }
            case "subscribe" ->
                    consumers.put(
                            key,
                            clients.get(of.get("client"))
                                    .newConsumer()
                                    .topic(of.get("topic"))
                                    .subscriptionName(of.get("subscription"))
                                    .subscriptionType(TYPES.get(of.getOrDefault("type", "Exclusive")))
                                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                                    .subscribe());
            case "receive" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                var message = consumers.get(key).receive(milliseconds, TimeUnit.MILLISECONDS);
                if (message == null) {
                    throw new PulsarClientException.TimeoutException("nothing came");
                }
                consumers.get(key).acknowledge(message);
                var payload = new String(message.getData(), StandardCharsets.UTF_8);
                return "\tpayload=" + payload + "\ttopic=" + message.getTopicName() + "\tkey=" + message.getKey();
            }
            case "partitions" -> {
                return "\tcount=" + clients.get(of.get("client")).getPartitionsForTopic(of.get("topic")).join().size();
            }
            case "close" -> {
                if (producers.containsKey(key)) {
                    producers.remove(key).close();
                } else {
                    clients.remove(key).close();
                }
            }
            default -> throw new PulsarClientException("no such verb: " + verb);
        }
        return "";
    }
}
