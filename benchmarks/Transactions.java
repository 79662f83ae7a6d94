import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Publishes plainly and in transactions by turns; a line for each turn: what, messages, seconds. transactions.py runs it. */
public final class Transactions {
    private static final int MESSAGES = 10;
    private static final int OPEN = 100;
    private static final byte[] PAYLOAD = new byte[100];

    private final PulsarClient client;
    private final Producer<byte[]> producer;
    private final AtomicLong done = new AtomicLong();
    private final AtomicLong beginning = new AtomicLong();
    private final AtomicLong sending = new AtomicLong();
    private final AtomicLong committing = new AtomicLong();
    private final Semaphore places = new Semaphore(0);
    private volatile boolean goesOn;
    private volatile Throwable failure;

    private Transactions(PulsarClient client, Producer<byte[]> producer) {
        this.client = client;
        this.producer = producer;
    }

    public static void main(String[] arguments) throws Exception {
        var turns = Integer.parseInt(arguments[1]);
        var seconds = Double.parseDouble(arguments[2]);
        try (var client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build()) {
            for (var turn = 0; turn <= turns; turn++) {
                for (var what : new String[] {"plain", "transactions"}) {
                    var builder = client.newProducer().topic("java-" + what).blockIfQueueFull(true);
                    try (var producer = builder.sendTimeout(0, TimeUnit.SECONDS).create()) {
                        new Transactions(client, producer).turn(what, turn == 0 ? seconds / 2 : seconds, turn > 0);
                    }
                }
            }
        }
    }

    /** So many messages are on their way at any time, whichever it is. */
    private void turn(String what, double seconds, boolean isCounted) throws Exception {
        System.out.println("begins " + what);
        goesOn = true;
        var began = System.nanoTime();
        for (var place = 0; place < OPEN; place++) {
            if (what.equals("plain")) {
                plainly();
            } else {
                inTransaction();
            }
        }
        Thread.sleep((long) (seconds * 1000));
        goesOn = false;
        if (!places.tryAcquire(OPEN, 60, TimeUnit.SECONDS) || failure != null) {
            throw new IllegalStateException("a turn of " + what + " did not end well", failure);
        }
        var took = (System.nanoTime() - began) / 1e9;
        System.out.println((isCounted ? "counts " : "warms ") + what + " " + done.get() + " " + took);
        var each = done.get() / MESSAGES * 1e6;
        System.out.printf("took %.2f %.2f %.2f%n", beginning.get() / each, sending.get() / each, committing.get() / each);
    }

    private void plainly() {
        go(sent(null));
    }

    private void inTransaction() {
        var began = System.nanoTime();
        go(client.newTransaction()
                .withTransactionTimeout(1, TimeUnit.MINUTES)
                .build()
                .thenCompose(
                        transaction -> {
                            var open = System.nanoTime();
                            beginning.addAndGet(open - began);
                            return sent(transaction)
                                    .thenCompose(
                                            nothing -> {
                                                var stored = System.nanoTime();
                                                sending.addAndGet(stored - open);
                                                return transaction
                                                        .commit()
                                                        .thenRun(
                                                                () -> committing.addAndGet(
                                                                        System.nanoTime() - stored));
                                            });
                        }));
    }

    private CompletableFuture<Void> sent(Transaction transaction) {
        var all = new CompletableFuture<?>[MESSAGES];
        for (var number = 0; number < MESSAGES; number++) {
            var message = transaction == null ? producer.newMessage() : producer.newMessage(transaction);
            all[number] = message.value(PAYLOAD).sendAsync();
        }
        return CompletableFuture.allOf(all);
    }

    /** Once these ten are done, the next ten. */
    private void go(CompletableFuture<Void> ten) {
        ten.whenComplete(
                (nothing, problem) -> {
                    if (problem != null) {
                        failure = problem;
                    } else {
                        done.addAndGet(MESSAGES);
                    }
                    if (!goesOn || problem != null) {
                        places.release();
                        return;
                    }
                    CompletableFuture.runAsync("java-plain".equals(topic()) ? this::plainly : this::inTransaction);
                });
    }

    private String topic() {
        var topic = producer.getTopic();
        return topic.substring(topic.lastIndexOf('/') + 1);
    }
}
