import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.apache.pulsar.client.api.schema.GenericSchema;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;
import org.apache.pulsar.client.api.transaction.Transaction;

/** The Java client as a driver; driver.py tells the protocol. */
public final class Driver {
    private static final Map<String, SubscriptionType> TYPES =
            Map.of(
                    "Exclusive", SubscriptionType.Exclusive,
                    "Shared", SubscriptionType.Shared,
                    "KeyShared", SubscriptionType.Key_Shared,
                    "Failover", SubscriptionType.Failover);
    private static final Map<String, PulsarClient> clients = new ConcurrentHashMap<>();
    private static final Map<String, Producer<byte[]>> producers = new ConcurrentHashMap<>();
    private static final Map<String, Consumer<byte[]>> consumers = new ConcurrentHashMap<>();
    private static final Map<String, Reader<byte[]>> readers = new ConcurrentHashMap<>();
    private static final Map<String, TableView<byte[]>> tables = new ConcurrentHashMap<>();
    /** Consumers without a queue: their client has no time-out for them. */
    private static final Set<String> unqueued = ConcurrentHashMap.newKeySet();
    private static final Map<String, MessageId> ids = new ConcurrentHashMap<>();

    private static final Map<String, GenericSchema<GenericRecord>> schemas = new ConcurrentHashMap<>();
    private static final Map<String, Producer<GenericRecord>> recordProducers = new ConcurrentHashMap<>();
    private static final Map<String, Consumer<GenericRecord>> recordConsumers = new ConcurrentHashMap<>();
    private static final Map<String, Transaction> transactions = new ConcurrentHashMap<>();

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

    private static String read(Path file) {
        try {
            return Files.readString(file).strip();
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }

    private static void answer(String number, String verb, Map<String, String> of) {
        String answer;
        try {
            answer = "ok" + carryOut(verb, of);
        } catch (PulsarClientException problem) {
            var name = problem.getClass().getSimpleName().replaceAll("Exception$", "");
            answer = "error\t" + name + "\t" + String.valueOf(problem.getMessage()).replaceAll("\\s+", " ");
        } catch (ExecutionException | CompletionException problem) {
            var cause = problem.getCause();
            var name = cause.getClass().getSimpleName().replaceAll("Exception$", "");
            answer = "error\t" + name + "\t" + String.valueOf(cause.getMessage()).replaceAll("\\s+", " ");
        } catch (InterruptedException problem) {
            answer = "error\tInterrupted\tinterrupted";
        }
        synchronized (System.out) {
            System.out.println(number + "\t" + answer);
            System.out.flush();
        }
    }

    private static String digest(byte[] payload) throws PulsarClientException {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(payload));
        } catch (NoSuchAlgorithmException problem) {
            throw new PulsarClientException(problem);
        }
    }

    /** Sets the files of a client with TLS. */
    private static ClientBuilder secured(ClientBuilder builder, Map<String, String> of) {
        if (of.containsKey("trust")) {
            builder.tlsTrustCertsFilePath(of.get("trust")).enableTlsHostnameVerification(true);
        }
        if (of.containsKey("certificate")) {
            builder.tlsCertificateFilePath(of.get("certificate")).tlsKeyFilePath(of.get("private_key"));
        }
        return builder;
    }

    private static String carryOut(String verb, Map<String, String> of)
            throws PulsarClientException, ExecutionException, InterruptedException {
        var key = of.get("key");
        switch (verb) {
            case "client" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                var builder = PulsarClient.builder();
                if (of.containsKey("token_file")) {
                    var file = Path.of(of.get("token_file"));
                    builder.authentication(AuthenticationFactory.token(() -> read(file)));
                } else if (of.containsKey("basic_file")) {
                    var words = read(Path.of(of.get("basic_file"))).split(":", 2);
                    var basic = new AuthenticationBasic();
                    basic.configure(Map.of("userId", words[0], "password", words[1]));
                    builder.authentication(basic);
                }
                clients.put(
                        key,
                        secured(builder, of)
                                .serviceUrl(of.get("url"))
                                .operationTimeout(milliseconds, TimeUnit.MILLISECONDS)
                                .keepAliveInterval(
                                        Integer.parseInt(of.getOrDefault("keep_alive_ms", "30000")) / 1000,
                                        TimeUnit.SECONDS)
                                .enableTransaction("yes".equals(of.get("transactions")))
                                .build());
            }
            case "producer" -> {
                if (of.getOrDefault("fields", "").equals("*")) {
                    producers.put(
                            key,
                            clients.get(of.get("client"))
                                    .newProducer(Schema.AUTO_PRODUCE_BYTES())
                                    .topic(of.get("topic"))
                                    .create());
                    return "\tname=" + producers.get(key).getProducerName();
                }
                if (of.containsKey("fields")) {
                    var schema = schemaOf(of.get("fields"));
                    recordProducers.put(
                            key, clients.get(of.get("client")).newProducer(schema).topic(of.get("topic")).create());
                    schemas.put(key, schema);
                    return "\tname=" + recordProducers.get(key).getProducerName();
                }
                var milliseconds = Integer.parseInt(of.getOrDefault("send_timeout_ms", "30000"));
                var builder =
                        clients.get(of.get("client"))
                                .newProducer()
                                .topic(of.get("topic"))
                                .accessMode(ProducerAccessMode.valueOf(of.getOrDefault("access", "Shared")))
                                .sendTimeout(milliseconds, TimeUnit.MILLISECONDS)
                                .enableBatching(of.containsKey("batch"))
                                .batchingMaxMessages(Integer.parseInt(of.getOrDefault("batch", "1000")))
                                .batchingMaxPublishDelay(1, TimeUnit.MINUTES)
                                .enableChunking(of.containsKey("chunking"))
                                .compressionType(CompressionType.valueOf(of.getOrDefault("compression", "NONE")));
                if (of.containsKey("keys")) {
                    builder.defaultCryptoKeyReader("file://" + of.get("keys") + "/public.pem").addEncryptionKey("key");
                }
                if (of.containsKey("name")) {
                    builder.producerName(of.get("name"));
                }
                producers.put(key, builder.create());
                return "\tname=" + producers.get(key).getProducerName();
            }
            case "send" -> {
                if (recordProducers.containsKey(key)) {
                    var record = schemas.get(key).newRecordBuilder();
                    schemas.get(key).getFields().forEach(field -> record.set(field, of.get("payload")));
                    recordProducers.get(key).send(record.build());
                    return "";
                }
                var message =
                        of.containsKey("transaction")
                                ? producers.get(key).newMessage(transactions.get(of.get("transaction")))
                                : producers.get(key).newMessage();
                if (of.containsKey("message_key")) {
                    message.key(of.get("message_key"));
                }
                if (of.containsKey("delay_ms")) {
                    message.deliverAfter(Long.parseLong(of.get("delay_ms")), TimeUnit.MILLISECONDS);
                }
                ids.put(of.get("payload"), message.value(of.get("payload").getBytes(StandardCharsets.UTF_8)).send());
            }
            case "send_bytes" -> {
                var payload = new byte[Integer.parseInt(of.get("size"))];
                new Random(of.get("seed").hashCode()).nextBytes(payload);
                var message = producers.get(key).newMessage().value(payload);
                if (of.containsKey("message_key")) {
                    message.key(of.get("message_key"));
                }
                message.send();
                return "\tdigest=" + digest(payload);
            }
            case "send_batch" -> {
                var sent = new LinkedHashMap<String, CompletableFuture<MessageId>>();
                for (var payload : of.get("payloads").split(",")) {
                    sent.put(payload, producers.get(key).sendAsync(payload.getBytes(StandardCharsets.UTF_8)));
                }
                producers.get(key).flush();
                sent.forEach((payload, id) -> ids.put(payload, id.join()));
            }
            case "subscribe" -> {
                if (of.containsKey("fields")) {
                    var fields = of.get("fields");
                    recordConsumers.put(
                            key,
                            clients.get(of.get("client"))
                                    .newConsumer(fields.equals("*") ? Schema.AUTO_CONSUME() : schemaOf(fields))
                                    .topic(of.get("topic"))
                                    .subscriptionName(of.get("subscription"))
                                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                                    .subscribe());
                } else {
                    if ("0".equals(of.get("queue"))) {
                        unqueued.add(key);
                    }
                    consumers.put(key, consumer(of));
                }
            }
            case "receive_bytes" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                var message = consumers.get(key).receive(milliseconds, TimeUnit.MILLISECONDS);
                if (message == null) {
                    throw new PulsarClientException.TimeoutException("nothing came");
                }
                consumers.get(key).acknowledge(message);
                return "\tdigest=" + digest(message.getData());
            }
            case "read_compacted" -> {
                var builder = clients.get(of.get("client")).newReader().topic(of.get("topic"));
                var found = new StringJoiner(",");
                try (var reader = builder.startMessageId(MessageId.earliest).readCompacted(true).create()) {
                    while (reader.hasMessageAvailable()) {
                        var message = reader.readNext(Integer.parseInt(of.get("timeout_ms")), TimeUnit.MILLISECONDS);
                        found.add(message.getKey() + ":" + new String(message.getData(), StandardCharsets.UTF_8));
                    }
                } catch (java.io.IOException problem) {
                    throw new PulsarClientException(problem);
                }
                return "\tmessages=" + found;
            }
            case "table" -> {
                try (var view = table(of)) {
                    return entries(view);
                } catch (java.io.IOException problem) {
                    throw new PulsarClientException(problem);
                }
            }
            case "open_table" -> tables.put(key, table(of));
            case "entries" -> {
                return entries(tables.get(key));
            }
            case "resume" -> consumers.get(key).resume();
            case "receive" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                if (recordConsumers.containsKey(key)) {
                    return record(recordConsumers.get(key), milliseconds);
                }
                var message =
                        unqueued.contains(key)
                                ? consumers.get(key).receive()
                                : consumers.get(key).receive(milliseconds, TimeUnit.MILLISECONDS);
                if (message == null) {
                    throw new PulsarClientException.TimeoutException("nothing came");
                }
                if (of.containsKey("transaction")) {
                    var transaction = transactions.get(of.get("transaction"));
                    if ("cumulative".equals(of.get("acknowledge"))) {
                        consumers.get(key).acknowledgeCumulativeAsync(message.getMessageId(), transaction).get();
                    } else {
                        consumers.get(key).acknowledgeAsync(message.getMessageId(), transaction).get();
                    }
                    return told(message);
                }
                switch (of.getOrDefault("then", "acknowledge")) {
                    case "acknowledge" -> consumers.get(key).acknowledge(message);
                    case "give back" -> consumers.get(key).negativeAcknowledge(message);
                    case "put off" -> consumers.get(key).reconsumeLater(message, 100, TimeUnit.MILLISECONDS);
                    default -> {}
                }
                return told(message);
            }
            case "reader" -> {
                var builder = clients.get(of.get("client")).newReader().topic(of.get("topic"));
                builder.startMessageId(place(of.get("start")));
                if ("yes".equals(of.get("inclusive"))) {
                    builder.startMessageIdInclusive();
                }
                builder.readCompacted("yes".equals(of.get("compacted")));
                readers.put(key, builder.create());
            }
            case "available" -> {
                return "\tanswer=" + (readers.get(key).hasMessageAvailable() ? "yes" : "no");
            }
            case "read" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                var message = readers.get(key).readNext(milliseconds, TimeUnit.MILLISECONDS);
                if (message == null) {
                    throw new PulsarClientException.TimeoutException("nothing came");
                }
                return "\tpayload=" + new String(message.getData(), StandardCharsets.UTF_8);
            }
            case "seek" -> {
                if (readers.containsKey(key) && of.containsKey("time_ms")) {
                    readers.get(key).seek(Long.parseLong(of.get("time_ms")));
                } else if (readers.containsKey(key)) {
                    readers.get(key).seek(place(of.get("place")));
                } else if (of.containsKey("time_ms")) {
                    consumers.get(key).seek(Long.parseLong(of.get("time_ms")));
                } else {
                    consumers.get(key).seek(place(of.get("place")));
                }
            }
            case "begin" -> {
                var milliseconds = Integer.parseInt(of.get("timeout_ms"));
                var begun =
                        clients.get(of.get("client"))
                                .newTransaction()
                                .withTransactionTimeout(milliseconds, TimeUnit.MILLISECONDS)
                                .build()
                                .get();
                transactions.put(key, begun);
                var id = begun.getTxnID();
                return "\tmost=" + id.getMostSigBits() + "\tleast=" + id.getLeastSigBits();
            }
            case "commit" -> transactions.get(key).commit().get();
            case "abort" -> transactions.get(key).abort().get();
            case "partitions" -> {
                return "\tcount=" + clients.get(of.get("client")).getPartitionsForTopic(of.get("topic")).join().size();
            }
            case "close" -> {
                if (producers.containsKey(key)) {
                    producers.remove(key).close();
                } else if (consumers.containsKey(key)) {
                    consumers.remove(key).close();
                } else if (recordProducers.containsKey(key)) {
                    recordProducers.remove(key).close();
                } else {
                    clients.remove(key).close();
                }
            }
            default -> throw new PulsarClientException("no such verb: " + verb);
        }
        return "";
    }

    private static Consumer<byte[]> consumer(Map<String, String> of) throws PulsarClientException {
        var builder =
                clients.get(of.get("client"))
                        .newConsumer()
                        .subscriptionName(of.get("subscription"))
                        .subscriptionType(TYPES.get(of.getOrDefault("type", "Exclusive")))
                        .subscriptionInitialPosition(
                                "latest".equals(of.get("from"))
                                        ? SubscriptionInitialPosition.Latest
                                        : SubscriptionInitialPosition.Earliest)
                        .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                        .enableBatchIndexAcknowledgment(true)
                        .startMessageIdInclusive()
                        .receiverQueueSize(Integer.parseInt(of.getOrDefault("queue", "1000")))
                        .startPaused("yes".equals(of.get("paused")))
                        .isAckReceiptEnabled("yes".equals(of.get("receipts")))
                        .enableRetry(of.containsKey("retries"));
        if (of.containsKey("pattern")) {
            builder.topicsPattern(of.get("pattern")).patternAutoDiscoveryPeriod(5, TimeUnit.SECONDS);
        } else {
            builder.topic(of.get("topic"));
        }
        if (of.containsKey("keys")) {
            builder.defaultCryptoKeyReader("file://" + of.get("keys") + "/private.pem");
        }
        if (of.containsKey("dead_letters")) {
            var policy =
                    DeadLetterPolicy.builder()
                            .maxRedeliverCount(Integer.parseInt(of.get("redeliveries")))
                            .deadLetterTopic(of.get("dead_letters"))
                            .initialSubscriptionName(of.get("first_subscription"));
            if (of.containsKey("retries")) {
                policy.retryLetterTopic(of.get("retries"));
            }
            builder.deadLetterPolicy(policy.build());
        }
        return builder.subscribe();
    }

    private static TableView<byte[]> table(Map<String, String> of) throws PulsarClientException {
        return clients.get(of.get("client")).newTableView(Schema.BYTES).topic(of.get("topic")).create();
    }

    private static String entries(TableView<byte[]> view) {
        var found = new TreeSet<String>();
        view.forEach((name, value) -> found.add(name + ":" + new String(value, StandardCharsets.UTF_8)));
        return "\tentries=" + String.join(",", found);
    }

    private static String told(Message<byte[]> message) {
        var payload = new String(message.getData(), StandardCharsets.UTF_8);
        return "\tpayload=" + payload + "\ttopic=" + message.getTopicName() + "\tkey=" + message.getKey()
                + "\tcount=" + message.getRedeliveryCount();
    }

    /** One of the ends, or a message that was published here. */
    private static MessageId place(String word) {
        return switch (word) {
            case "earliest" -> MessageId.earliest;
            case "latest" -> MessageId.latest;
            default -> ids.get(word);
        };
    }

    private static GenericSchema<GenericRecord> schemaOf(String fields) {
        var described = new StringBuilder();
        for (var field : fields.split(",")) {
            var parts = field.split("=", 2);
            described.append(described.isEmpty() ? "" : ",");
            described.append("{\"name\":\"" + parts[0] + "\",\"type\":\"string\"");
            described.append(parts.length > 1 ? ",\"default\":\"" + parts[1] + "\"}" : "}");
        }
        var data = "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[" + described + "]}";
        return Schema.generic(
                SchemaInfo.builder()
                        .name("Order")
                        .type(SchemaType.AVRO)
                        .schema(data.getBytes(StandardCharsets.UTF_8))
                        .properties(Map.of())
                        .build());
    }

    private static String record(Consumer<GenericRecord> consumer, int milliseconds) throws PulsarClientException {
        var message = consumer.receive(milliseconds, TimeUnit.MILLISECONDS);
        if (message == null) {
            throw new PulsarClientException.TimeoutException("nothing came");
        }
        consumer.acknowledge(message);
        var said = new StringBuilder();
        for (var field : message.getValue().getFields()) {
            said.append("\t" + field.getName() + "=" + message.getValue().getField(field));
        }
        return said + "\tversion=" + ByteBuffer.wrap(message.getSchemaVersion()).getLong();
    }
}
