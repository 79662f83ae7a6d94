// The Go client as a driver; driver.py tells the protocol.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
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
		"Failover":  pulsar.Failover,
	}
	compressions = map[string]pulsar.CompressionType{
		"LZ4":  pulsar.LZ4,
		"ZLIB": pulsar.ZLib,
		"ZSTD": pulsar.ZSTD,
	}
	space     = regexp.MustCompile(`\s+`)
	mutex     sync.Mutex
	clients   = map[string]pulsar.Client{}
	producers = map[string]pulsar.Producer{}
	consumers = map[string]pulsar.Consumer{}
	readers   = map[string]pulsar.Reader{}
	tables    = map[string]pulsar.TableView{}
	ids       = map[string]pulsar.MessageID{}
	fields    = map[string]string{}

	transactions = map[string]pulsar.Transaction{}
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
	for _, name := range []string{"ProducerFenced", "ProducerBusy", "IncompatibleSchema", "MessageTooBig", "Timeout"} {
		if strings.Contains(err.Error(), name) {
			return name
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "deadline exceeded") {
		return "Timeout"
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
			OperationTimeout:  milliseconds(of["timeout_ms"]),
			KeepAliveInterval: milliseconds(of["keep_alive_ms"]),
			Logger:            log.NewLoggerWithLogrus(quiet),

			EnableTransaction: of["transactions"] == "yes",
			Authentication:    authenticationOf(of),

			TLSTrustCertsFilePath: of["trust"],
			TLSValidateHostname:   of["trust"] != "",
			TLSCertificateFile:    of["certificate"],
			TLSKeyFilePath:        of["private_key"],
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

			DisableBatching:         of["batch"] == "" && of["fields"] == "",
			BatchingMaxMessages:     uint(number(of["batch"], 1)),
			BatchingMaxPublishDelay: batchingDelay(of),
			Schema:                  schemaOf(of["fields"]),
			EnableChunking:          of["chunking"] != "",
			CompressionType:         compressions[of["compression"]],
			Encryption:              encryptionOf(of["keys"]),
		})
		if err != nil {
			return "", err
		}
		mutex.Lock()
		defer mutex.Unlock()
		producers[key] = producer
		fields[key] = of["fields"]
		return "\tname=" + producer.Name(), nil
	case "send":
		if names := fieldsOf(key); names != nil {
			value := map[string]any{}
			for _, name := range names {
				value[name] = of["payload"]
			}
			_, err := producerOf(key).Send(context.Background(), &pulsar.ProducerMessage{Value: value})
			return "", err
		}
		message := &pulsar.ProducerMessage{Payload: []byte(of["payload"]), Key: of["message_key"]}
		if of["delay_ms"] != "" {
			message.DeliverAfter = milliseconds(of["delay_ms"])
		}
		if of["transaction"] != "" {
			message.Transaction = transactionOf(of["transaction"])
		}
		id, err := producerOf(key).Send(context.Background(), message)
		sent(of["payload"], id)
		return "", err
	case "send_batch":
		return "", sendBatch(producerOf(key), strings.Split(of["payloads"], ","))
	case "send_bytes":
		payload := make([]byte, number(of["size"], 0))
		rand.New(rand.NewSource(int64(of["seed"][0]))).Read(payload)
		message := &pulsar.ProducerMessage{Payload: payload, Key: of["message_key"]}
		_, err := producerOf(key).Send(context.Background(), message)
		return digestOf(payload), err
	case "receive_bytes":
		waiting, cancel := context.WithTimeout(context.Background(), milliseconds(of["timeout_ms"]))
		defer cancel()
		message, err := consumerOf(key).Receive(waiting)
		if err != nil {
			return "", fmt.Errorf("Timeout: %w", err)
		}
		return digestOf(message.Payload()), consumerOf(key).Ack(message)
	case "read_compacted":
		return readCompacted(of)
	case "table", "open_table":
		view, err := clientOf(of["client"]).CreateTableView(pulsar.TableViewOptions{
			Topic:           of["topic"],
			Schema:          pulsar.NewBytesSchema(nil),
			SchemaValueType: reflect.TypeOf([]byte{}),
		})
		if err != nil || verb == "table" {
			return entriesOf(view, err)
		}
		mutex.Lock()
		defer mutex.Unlock()
		tables[key] = view
		return "", nil
	case "entries":
		mutex.Lock()
		view := tables[key]
		mutex.Unlock()
		return entriesOf(view, nil)
	case "subscribe":
		consumer, err := clientOf(of["client"]).Subscribe(consumerOptions(of))
		mutex.Lock()
		defer mutex.Unlock()
		consumers[key] = consumer
		fields[key] = of["fields"]
		return "", err
	case "receive":
		consumer := consumerOf(key)
		waiting, cancel := context.WithTimeout(context.Background(), milliseconds(of["timeout_ms"]))
		defer cancel()
		message, err := consumer.Receive(waiting)
		if err != nil {
			return "", fmt.Errorf("Timeout: %w", err)
		}
		if names := fieldsOf(key); names != nil {
			value := map[string]any{}
			if err := message.GetSchemaValue(&value); err != nil {
				return "", err
			}
			said := fmt.Sprintf("\tversion=%d", binary.BigEndian.Uint64(message.SchemaVersion()))
			for _, name := range names {
				if text, isThere := value[name]; isThere {
					said += fmt.Sprintf("\t%s=%s", name, text)
				}
			}
			return said, consumer.Ack(message)
		}
		if of["transaction"] != "" {
			of["then"] = "in transaction"
			err = consumer.AckWithTxn(message, transactionOf(of["transaction"]))
		}
		switch of["then"] {
		case "in transaction":
		case "give back":
			consumer.Nack(message)
		case "put off":
			consumer.ReconsumeLater(message, 100*time.Millisecond)
		case "keep":
		default:
			err = consumer.Ack(message)
		}
		return fmt.Sprintf("\tpayload=%s\ttopic=%s\tkey=%s\tcount=%d",
			message.Payload(), message.Topic(), message.Key(), message.RedeliveryCount()), err
	case "reader":
		reader, err := clientOf(of["client"]).CreateReader(pulsar.ReaderOptions{
			Topic:                   of["topic"],
			StartMessageID:          placeOf(of["start"]),
			StartMessageIDInclusive: of["inclusive"] == "yes",
			ReadCompacted:           of["compacted"] == "yes",
		})
		mutex.Lock()
		defer mutex.Unlock()
		readers[key] = reader
		return "", err
	case "available":
		if readerOf(key).HasNext() {
			return "\tanswer=yes", nil
		}
		return "\tanswer=no", nil
	case "read":
		waiting, cancel := context.WithTimeout(context.Background(), milliseconds(of["timeout_ms"]))
		defer cancel()
		message, err := readerOf(key).Next(waiting)
		if err != nil {
			return "", fmt.Errorf("Timeout: %w", err)
		}
		return "\tpayload=" + string(message.Payload()), nil
	case "seek":
		if reader := readerOf(key); reader != nil && of["time_ms"] != "" {
			return "", reader.SeekByTime(time.UnixMilli(int64(number(of["time_ms"], 0))))
		} else if reader != nil {
			return "", reader.Seek(placeOf(of["place"]))
		}
		if of["time_ms"] != "" {
			return "", consumerOf(key).SeekByTime(time.UnixMilli(int64(number(of["time_ms"], 0))))
		}
		return "", consumerOf(key).Seek(placeOf(of["place"]))
	case "begin":
		transaction, err := clientOf(of["client"]).NewTransaction(milliseconds(of["timeout_ms"]))
		if err != nil {
			return "", err
		}
		mutex.Lock()
		defer mutex.Unlock()
		transactions[key] = transaction
		id := transaction.GetTxnID()
		return fmt.Sprintf("\tmost=%d\tleast=%d", id.MostSigBits, id.LeastSigBits), nil
	case "commit":
		return "", transactionOf(key).Commit(context.Background())
	case "abort":
		return "", transactionOf(key).Abort(context.Background())
	case "partitions":
		names, err := clientOf(of["client"]).TopicPartitions(of["topic"])
		return fmt.Sprintf("\tcount=%d", len(names)), err
	case "close":
		if producer := producerOf(key); producer != nil {
			producer.Close()
		} else if consumer := consumerOf(key); consumer != nil {
			consumer.Close()
		} else {
			clients[key].Close()
		}
		return "", nil
	}
	return "", fmt.Errorf("no such verb: %s", verb)
}

func consumerOptions(of map[string]string) pulsar.ConsumerOptions {
	options := pulsar.ConsumerOptions{
		Topic:                          of["topic"],
		Schema:                         schemaOf(of["fields"]),
		TopicsPattern:                  of["pattern"],
		AutoDiscoveryPeriod:            time.Second,
		SubscriptionName:               of["subscription"],
		Type:                           types[of["type"]],
		SubscriptionInitialPosition:    pulsar.SubscriptionPositionEarliest,
		NackRedeliveryDelay:            100 * time.Millisecond,
		EnableBatchIndexAcknowledgment: true,
		StartMessageIDInclusive:        true,
		RetryEnable:                    of["retries"] != "",
		EnableZeroQueueConsumer:        of["queue"] == "0",
		AckWithResponse:                of["receipts"] == "yes",
	}
	if of["keys"] != "" {
		options.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: keysIn(of["keys"])}
	}
	if of["from"] == "latest" {
		options.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	}
	if of["dead_letters"] != "" {
		deliveries := number(of["redeliveries"], 0)
		if of["retries"] == "" {
			deliveries++ // this client counts the first one, too
		}
		options.DLQ = &pulsar.DLQPolicy{
			MaxDeliveries:           uint32(deliveries),
			DeadLetterTopic:         of["dead_letters"],
			RetryLetterTopic:        of["retries"],
			InitialSubscriptionName: of["first_subscription"],
		}
	}
	return options
}

// Those who ask for batches of a size wait for it. Of messages that are sent alone this client does not say the schema.
func batchingDelay(of map[string]string) time.Duration {
	if of["batch"] == "" {
		return time.Millisecond
	}
	return time.Second
}

// As many as its producer puts into one batch.
func sendBatch(producer pulsar.Producer, payloads []string) error {
	outcomes := make(chan error, len(payloads))
	for _, payload := range payloads {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)},
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				sent(payload, id)
				outcomes <- err
			})
	}
	for range payloads {
		if err := <-outcomes; err != nil {
			return err
		}
	}
	return nil
}

func sent(payload string, id pulsar.MessageID) {
	mutex.Lock()
	defer mutex.Unlock()
	ids[payload] = id
}

// One of the ends, or a message that was published here.
func placeOf(word string) pulsar.MessageID {
	switch word {
	case "earliest":
		return pulsar.EarliestMessageID()
	case "latest":
		return pulsar.LatestMessageID()
	}
	mutex.Lock()
	defer mutex.Unlock()
	return ids[word]
}

// Key and value of everything there is, from the earliest message on.
func readCompacted(of map[string]string) (string, error) {
	reader, err := clientOf(of["client"]).CreateReader(pulsar.ReaderOptions{
		Topic:          of["topic"],
		StartMessageID: pulsar.EarliestMessageID(),
		ReadCompacted:  true,
	})
	if err != nil {
		return "", err
	}
	defer reader.Close()
	found := []string{}
	for reader.HasNext() {
		waiting, cancel := context.WithTimeout(context.Background(), milliseconds(of["timeout_ms"]))
		message, err := reader.Next(waiting)
		cancel()
		if err != nil {
			return "", err
		}
		found = append(found, message.Key()+":"+string(message.Payload()))
	}
	return "\tmessages=" + strings.Join(found, ","), nil
}

// Key and value of a table view, by key.
func entriesOf(view pulsar.TableView, err error) (string, error) {
	if err != nil {
		return "", err
	}
	found := []string{}
	for key, value := range view.Entries() {
		found = append(found, fmt.Sprintf("%s:%s", key, value))
	}
	sort.Strings(found)
	return "\tentries=" + strings.Join(found, ","), nil
}

func digestOf(payload []byte) string {
	return fmt.Sprintf("\tdigest=%x", sha256.Sum256(payload))
}

// A folder with public.pem and private.pem.
func keysIn(folder string) crypto.KeyReader {
	return crypto.NewFileKeyReader(folder+"/public.pem", folder+"/private.pem")
}

// Credentials in files: a token, which is read each time, or NAME:PASSWORD.
func authenticationOf(of map[string]string) pulsar.Authentication {
	if of["token_file"] != "" {
		return pulsar.NewAuthenticationTokenFromSupplier(func() (string, error) {
			token, err := os.ReadFile(of["token_file"])
			return strings.TrimSpace(string(token)), err
		})
	}
	if of["basic_file"] != "" {
		words, _ := os.ReadFile(of["basic_file"])
		name, password, _ := strings.Cut(strings.TrimSpace(string(words)), ":")
		authentication, err := pulsar.NewAuthenticationBasic(name, password)
		if err != nil {
			panic(err)
		}
		return authentication
	}
	return nil
}

func encryptionOf(folder string) *pulsar.ProducerEncryptionInfo {
	if folder == "" {
		return nil
	}
	return &pulsar.ProducerEncryptionInfo{KeyReader: keysIn(folder), Keys: []string{"key"}}
}

func consumerOf(key string) pulsar.Consumer {
	mutex.Lock()
	defer mutex.Unlock()
	return consumers[key]
}

func readerOf(key string) pulsar.Reader {
	mutex.Lock()
	defer mutex.Unlock()
	return readers[key]
}

func schemaOf(text string) pulsar.Schema {
	if text == "" {
		return nil
	}
	described := []map[string]string{}
	for _, field := range strings.Split(text, ",") {
		name, value, hasDefault := strings.Cut(field, "=")
		described = append(described, map[string]string{"name": name, "type": "string"})
		if hasDefault {
			described[len(described)-1]["default"] = value
		}
	}
	data, _ := json.Marshal(map[string]any{"type": "record", "name": "Order", "fields": described})
	return pulsar.NewAvroSchema(string(data), nil)
}

func fieldsOf(key string) []string {
	mutex.Lock()
	defer mutex.Unlock()
	if fields[key] == "" {
		return nil
	}
	names := strings.Split(fields[key], ",")
	for index, name := range names {
		names[index], _, _ = strings.Cut(name, "=")
	}
	return names
}

func producerOf(key string) pulsar.Producer {
	mutex.Lock()
	defer mutex.Unlock()
	return producers[key]
}

func transactionOf(key string) pulsar.Transaction {
	mutex.Lock()
	defer mutex.Unlock()
	return transactions[key]
}

func clientOf(key string) pulsar.Client {
	mutex.Lock()
	defer mutex.Unlock()
	return clients[key]
}

func number(text string, absent int) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		return absent
	}
	return found
}

func milliseconds(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}
