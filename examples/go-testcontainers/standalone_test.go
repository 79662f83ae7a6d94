package geotest

import (
	"context"
	"strings"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/pulsar"
)

// One region in place of a standalone Pulsar, started by the Pulsar module of Testcontainers.
func TestStandalone(t *testing.T) {
	for name, options := range map[string][]testcontainers.ContainerCustomizer{
		"default":           nil,
		"with a setting":    {pulsar.WithPulsarEnv("brokerDeduplicationEnabled", "true")},
		"with transactions": {pulsar.WithTransactions()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			container, err := pulsar.Run(ctx, Image(), options...)
			testcontainers.CleanupContainer(t, container)
			check(t, err)
			url, err := container.BrokerURL(ctx)
			check(t, err)
			connection, err := client.NewClient(client.ClientOptions{URL: url, EnableTransaction: name == "with transactions"})
			check(t, err)
			defer connection.Close()
			sendAndReceive(ctx, t, connection, name == "with transactions")
		})
	}
}

func TestTheFunctionsWorkerIsRefused(t *testing.T) {
	container, err := pulsar.Run(context.Background(), Image(), pulsar.WithFunctionsWorker())
	testcontainers.CleanupContainer(t, container)
	if err == nil || !strings.Contains(err.Error(), "exited with code 2") {
		t.Fatalf("the container should have ended: %v", err)
	}
}

func sendAndReceive(ctx context.Context, t *testing.T, connection client.Client, transactional bool) {
	consumer, err := connection.Subscribe(client.ConsumerOptions{Topic: "orders", SubscriptionName: "billing"})
	check(t, err)
	producer, err := connection.CreateProducer(client.ProducerOptions{Topic: "orders"})
	check(t, err)
	message := &client.ProducerMessage{Payload: []byte("paid")}
	if transactional {
		transaction, err := connection.NewTransaction(time.Minute)
		check(t, err)
		message.Transaction = transaction
		defer func() { check(t, transaction.Commit(ctx)); expect(ctx, t, consumer) }()
	}
	_, err = producer.Send(ctx, message)
	check(t, err)
	if !transactional {
		expect(ctx, t, consumer)
	}
}

func expect(ctx context.Context, t *testing.T, consumer client.Consumer) {
	t.Helper()
	received, err := consumer.Receive(ctx)
	check(t, err)
	if string(received.Payload()) != "paid" {
		t.Fatalf("received %q", received.Payload())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
