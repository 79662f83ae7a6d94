package geotest

import (
	"context"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
)

// A message published before its region is killed is received in the other region; one published while the regions are
// cut off from each other is received there after the link is healed.
func TestFailover(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	regions := Start(t, "us-east", "eu-central")
	east, central := connect(t, regions, "us-east"), connect(t, regions, "eu-central")
	consumer, err := central.Subscribe(client.ConsumerOptions{Topic: "orders", SubscriptionName: "billing"})
	check(t, err)
	producer, err := east.CreateProducer(client.ProducerOptions{Topic: "orders"})
	check(t, err)

	send(ctx, t, producer, "before the kill")
	receive(ctx, t, consumer, "before the kill")

	regions.Cut("us-east", "eu-central")
	send(ctx, t, producer, "during the cut")
	short, done := context.WithTimeout(ctx, time.Second)
	defer done()
	if message, err := consumer.Receive(short); err == nil {
		t.Fatalf("received %q over a cut link", message.Payload())
	}
	regions.Kill("us-east")
	regions.Start("us-east") // on its stored log
	regions.Heal()
	receive(ctx, t, consumer, "during the cut")
}

func connect(t *testing.T, regions *Regions, region string) client.Client {
	connection, err := client.NewClient(client.ClientOptions{URL: regions.ServiceURL(region)})
	check(t, err)
	t.Cleanup(connection.Close)
	return connection
}

func send(ctx context.Context, t *testing.T, producer client.Producer, text string) {
	_, err := producer.Send(ctx, &client.ProducerMessage{Payload: []byte(text)})
	check(t, err)
}

func receive(ctx context.Context, t *testing.T, consumer client.Consumer, text string) {
	t.Helper()
	received, err := consumer.Receive(ctx)
	check(t, err)
	if string(received.Payload()) != text {
		t.Fatalf("received %q instead of %q", received.Payload(), text)
	}
	check(t, consumer.Ack(received))
}
