// A service as anybody would write it: reads orders where it runs, writes an invoice for each to the headquarters.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func main() {
	ctx := context.Background()
	orders, err := client("GEOEMU_SERVICE_URL").Subscribe(pulsar.ConsumerOptions{
		Topic:                       "orders",
		SubscriptionName:            "billing",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		ReplicateSubscriptionState:  true,
	})
	if err != nil {
		log.Fatal(err)
	}
	invoices, err := client("GEOEMU_SERVICE_URL_EU_CENTRAL").CreateProducer(pulsar.ProducerOptions{
		Topic:       "invoices",
		SendTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	for {
		order, err := orders.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		invoice := &pulsar.ProducerMessage{Key: order.Key(), Payload: append([]byte("invoice of "), order.Payload()...)}
		for _, err := invoices.Send(ctx, invoice); err != nil; _, err = invoices.Send(ctx, invoice) {
			log.Print("once more: ", err)
		}
		if err := orders.Ack(order); err != nil {
			log.Print(err)
		}
	}
}

func client(variable string) pulsar.Client {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv(variable)})
	if err != nil {
		log.Fatal(err)
	}
	return client
}
