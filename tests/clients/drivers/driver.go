// The Go client as a driver; driver.py tells the protocol.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

var (
	access = map[string]pulsar.ProducerAccessMode{
		"":                 pulsar.ProducerAccessModeShared,
		"Shared":           pulsar.ProducerAccessModeShared,
		"Exclusive":        pulsar.ProducerAccessModeExclusive,
		"WaitForExclusive": pulsar.ProducerAccessModeWaitForExclusive,
	}
	types = map[string]pulsar.SubscriptionType{
		"":          pulsar.Exclusive,
		"Exclusive": pulsar.Exclusive,
		"Shared":    pulsar.Shared,
		"KeyShared": pulsar.KeyShared,
	}
	space     = regexp.MustCompile(`\s+`)
	mutex     sync.Mutex
	clients   = map[string]pulsar.Client{}
	producers = map[string]pulsar.Producer{}
	consumers = map[string]pulsar.Consumer{}
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		of := map[string]string{}
		for _, pair := range words[2:] {
			name, value, _ := strings.Cut(pair, "=")
			of[name] = value
		}
		go answer(words[0], words[1], of)
	}
}

func answer(number, verb string, of map[string]string) {
	said, err := carryOut(verb, of)
	line := "ok" + said
	if err != nil {
		line = "error\t" + nameOf(err) + "\t" + space.ReplaceAllString(err.Error(), " ")
	}
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Printf("%s\t%s\n", number, line)
}

// What the other clients call it: this one has one type for most, and the protocol's name in its text.
func nameOf(err error) string {
	for _, name := range []string{"ProducerFenced", "ProducerBusy", "Timeout"} {
		if strings.Contains(err.Error(), name) {
			return name
		}
	}
	return "Unknown"
}

func carryOut(verb string, of map[string]string) (string, error) {
	key := of["key"]
	switch verb {
	case "client":
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		client, err := pulsar.NewClient(pulsar.ClientOptions{
			URL:              of["url"],
			OperationTimeout: milliseconds(of["timeout_ms"]),
			Logger:           log.NewLoggerWithLogrus(quiet),
		})
		mutex.Lock()
		defer mutex.Unlock()
		clients[key] = client
		return "", err
	case "producer":
		producer, err := clientOf(of["client"]).CreateProducer(pulsar.ProducerOptions{
			Topic:              of["topic"],
			Name:               of["name"],
			ProducerAccessMode: access[of["access"]],
			SendTimeout:        milliseconds(of["send_timeout_ms"]),
		})
		if err != nil {
			return "", err
		}
		mutex.Lock()
		defer mutex.Unlock()
		producers[key] = producer
		return "\tname=" + producer.Name(), nil
	case "send":
		_, err := producerOf(key).Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(of["payload"]), Key: of["message_key"]})
		return "", err
	case "subscribe":
		consumer, err := clientOf(of["client"]).Subscribe(pulsar.ConsumerOptions{
			Topic:                       of["topic"],
			SubscriptionName:            of["subscription"],
			Type:                        types[of["type"]],
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		})
		mutex.Lock()
		defer mutex.Unlock()
		consumers[key] = consumer
		return "", err
	case "receive":
		mutex.Lock()
		consumer := consumers[key]
		mutex.Unlock()
		waiting, cancel := context.WithTimeout(context.Background(), milliseconds(of["timeout_ms"]))
		defer cancel()
		message, err := consumer.Receive(waiting)
		if err != nil {
			return "", fmt.Errorf("Timeout: %w", err)
		}
		return "\tpayload=" + string(message.Payload()) + "\ttopic=" + message.Topic() + "\tkey=" + message.Key(), consumer.Ack(message)
	case "partitions":
		names, err := clientOf(of["client"]).TopicPartitions(of["topic"])
		return fmt.Sprintf("\tcount=%d", len(names)), err
	case "close":
		if producer := producerOf(key); producer != nil {
			producer.Close()
		} else {
			clients[key].Close()
		}
		return "", nil
	}
	return "", fmt.Errorf("no such verb: %s", verb)
}

func producerOf(key string) pulsar.Producer {
	mutex.Lock()
	defer mutex.Unlock()
	return producers[key]
}

func clientOf(key string) pulsar.Client {
	mutex.Lock()
	defer mutex.Unlock()
	return clients[key]
}

func milliseconds(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}
