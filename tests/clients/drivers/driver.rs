//! The Rust client as a driver; driver.py tells the protocol.

use async_trait::async_trait;
use futures::StreamExt;
use pulsar::{
    authentication::Authentication,
    compression::Compression,
    consumer::{Consumer, ConsumerOptions, InitialPosition, Message as Received},
    error::AuthenticationError,
    producer::{Message, Producer, ProducerOptions},
    proto::MessageIdData,
    reader::Reader,
    OperationRetryOptions, Pulsar, SubType, TokioExecutor,
};
use ring::digest::{digest, SHA256};
use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::Mutex,
    time::timeout,
};

type Arguments = HashMap<String, String>;
type Answer = Result<String, String>;
type Made<T> = Mutex<HashMap<String, Arc<Mutex<T>>>>;

/// The errors that stories know by name. This client tells the region's within its text.
const NAMES: [&str; 5] = ["ProducerFenced", "ProducerBusy", "IncompatibleSchema", "TopicTerminated", "Timeout"];
/// It tries again what was refused as busy or full, for ever if it is not told otherwise.
const RETRIES: u32 = 10;
/// It has none of its own for what it sends.
const SEND_MS: u64 = 30_000;

#[derive(Default)]
struct Driver {
    clients: Mutex<HashMap<String, Pulsar<TokioExecutor>>>,
    producers: Made<Producer<TokioExecutor>>,
    consumers: Made<Consumer<Vec<u8>, TokioExecutor>>,
    readers: Made<Reader<Vec<u8>, TokioExecutor>>,
    /// Of messages that were published here, by payload.
    ids: Mutex<HashMap<String, MessageIdData>>,
}

/// Credentials in a file, which is read each time: a token, or NAME:PASSWORD.
struct Credentials {
    method: &'static str,
    path: String,
}

#[async_trait]
impl Authentication for Credentials {
    fn auth_method_name(&self) -> String {
        self.method.to_string()
    }

    async fn initialize(&mut self) -> Result<(), AuthenticationError> {
        Ok(())
    }

    async fn auth_data(&mut self) -> Result<Vec<u8>, AuthenticationError> {
        std::fs::read(&self.path).map_err(|problem| AuthenticationError::Custom(problem.to_string()))
    }
}

#[tokio::main]
async fn main() {
    let driver = Arc::new(Driver::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let driver = driver.clone();
        tokio::spawn(async move {
            let mut words = line.split('\t');
            let (number, verb) = (words.next().unwrap(), words.next().unwrap());
            let of = words
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect();
            match driver.carry_out(verb, &of).await {
                Ok(said) => println!("{number}\tok{said}"),
                Err(text) => println!("{number}\terror\t{}\t{}", name_of(&text), text.replace(['\n', '\t'], " ")),
            }
        });
    }
}

fn name_of(text: &str) -> &'static str {
    NAMES.into_iter().find(|name| text.contains(name)).unwrap_or("Unknown")
}

impl Driver {
    async fn carry_out(&self, verb: &str, of: &Arguments) -> Answer {
        match verb {
            "client" => self.client(of).await,
            "producer" => self.producer(of).await,
            "send" => self.send(of).await,
            "send_batch" => self.send_batch(of).await,
            "send_bytes" => self.send_bytes(of).await,
            "subscribe" => self.subscribe(of).await,
            "receive" => self.receive(of).await,
            "receive_bytes" => self.receive_bytes(of).await,
            "reader" => self.reader(of).await,
            "read" => self.read(of).await,
            "seek" => self.seek(of).await,
            "partitions" => self.partitions(of).await,
            "close" => self.close(of).await,
            _ => Err(format!("no such verb: {verb}")),
        }
    }

    async fn client(&self, of: &Arguments) -> Answer {
        let retries = OperationRetryOptions {
            operation_timeout: Duration::from_millis(number(of, "timeout_ms").unwrap()),
            retry_delay: Duration::from_millis(100),
            max_retries: Some(RETRIES),
        };
        let mut builder = Pulsar::builder(&of["url"], TokioExecutor).with_operation_retry_options(retries);
        if let Some(path) = of.get("trust") {
            builder = builder.with_certificate_chain_file(path).map_err(text)?;
        }
        if let Some(path) = of.get("token_file").or(of.get("basic_file")) {
            let method = if of.contains_key("token_file") { "token" } else { "basic" };
            builder = builder.with_auth_provider(Box::new(Credentials { method, path: path.clone() }));
        }
        // It tries for minutes to connect.
        let made = within(wait_of(of), builder.build()).await?.map_err(text)?;
        self.clients.lock().await.insert(of["key"].clone(), made);
        Ok(String::new())
    }

    async fn client_of(&self, of: &Arguments) -> Pulsar<TokioExecutor> {
        self.clients.lock().await[&of["client"]].clone()
    }

    async fn producer(&self, of: &Arguments) -> Answer {
        let batch = number(of, "batch").map(|size| size as u32);
        let mut builder = self.client_of(of).await.producer().with_topic(&of["topic"]).with_options(ProducerOptions {
            batch_size: batch,
            batch_timeout: batch.map(|_| Duration::from_secs(60)),
            compression: compression_of(of.get("compression")),
            access_mode: of.get("access").map(|mode| access_of(mode)),
            ..Default::default()
        });
        if let Some(name) = of.get("name") {
            builder = builder.with_name(name);
        }
        let made = builder.build().await.map_err(text)?;
        self.producers.lock().await.insert(of["key"].clone(), Arc::new(Mutex::new(made)));
        Ok(format!("\tname={}", of.get("name").map_or("", String::as_str)))
    }

    async fn sent(&self, of: &Arguments, message: Message) -> Result<MessageIdData, String> {
        let producer = found(&self.producers, of).await?;
        let wait = Duration::from_millis(number(of, "send_timeout_ms").unwrap_or(SEND_MS));
        let receipt = within(wait, async {
            let stored = producer.lock().await.send_non_blocking(message).await.map_err(text)?;
            stored.await.map_err(text)
        });
        receipt.await??.message_id.ok_or_else(|| "no message id".to_string())
    }

    async fn send(&self, of: &Arguments) -> Answer {
        let delay_ms = number(of, "delay_ms");
        let message = Message {
            payload: of["payload"].clone().into_bytes(),
            partition_key: of.get("message_key").cloned(),
            deliver_at_time: delay_ms.map(|delay| now_ms() + delay as i64),
            ..Default::default()
        };
        let id = self.sent(of, message).await?;
        self.ids.lock().await.insert(of["payload"].clone(), id);
        Ok(String::new())
    }

    /// As many as its producer puts into one batch.
    async fn send_batch(&self, of: &Arguments) -> Answer {
        let producer = found(&self.producers, of).await?;
        let mut receipts = Vec::new();
        for payload in of["payloads"].split(',') {
            let stored = producer.lock().await.send_non_blocking(payload).await.map_err(text)?;
            receipts.push((payload, stored));
        }
        for (payload, stored) in receipts {
            let id = stored.await.map_err(text)?.message_id.ok_or("no message id")?;
            self.ids.lock().await.insert(payload.to_string(), id);
        }
        Ok(String::new())
    }

    /// A payload of `size` bytes that is different for each `seed`.
    async fn send_bytes(&self, of: &Arguments) -> Answer {
        let size = number(of, "size").unwrap() as usize;
        let payload: Vec<u8> = of["seed"].bytes().cycle().zip(0u32..).map(seeded).take(size).collect();
        let digest = digest_of(&payload);
        let message = Message { payload, partition_key: of.get("message_key").cloned(), ..Default::default() };
        self.sent(of, message).await?;
        Ok(format!("\tdigest={digest}"))
    }

    async fn subscribe(&self, of: &Arguments) -> Answer {
        let initial_position = match of.get("from").map(String::as_str) {
            Some("latest") => InitialPosition::Latest,
            _ => InitialPosition::Earliest,
        };
        let builder = self
            .client_of(of)
            .await
            .consumer()
            .with_subscription(&of["subscription"])
            .with_subscription_type(type_of(of.get("type")))
            .with_topic_refresh(Duration::from_millis(500))
            .with_options(ConsumerOptions { initial_position, ..Default::default() });
        let builder = match of.get("pattern") {
            Some(pattern) => builder.with_topic_regex(regex::Regex::new(pattern).map_err(text)?),
            None => builder.with_topic(&of["topic"]),
        };
        let made = builder.build().await.map_err(text)?;
        self.consumers.lock().await.insert(of["key"].clone(), Arc::new(Mutex::new(made)));
        Ok(String::new())
    }

    /// One message: acknowledged, given back, or neither.
    async fn received(&self, of: &Arguments) -> Result<Received<Vec<u8>>, String> {
        let consumer = found(&self.consumers, of).await?;
        let mut consumer = consumer.lock().await;
        let message = within(wait_of(of), consumer.next()).await?.ok_or("its stream has ended")?.map_err(text)?;
        match of.get("then").map(String::as_str) {
            Some("keep") => {}
            Some("give back") => consumer.nack(&message).await.map_err(text)?,
            _ => consumer.ack(&message).await.map_err(text)?,
        }
        Ok(message)
    }

    async fn receive(&self, of: &Arguments) -> Answer {
        let message = self.received(of).await?;
        let payload = String::from_utf8_lossy(&message.payload.data);
        let key = message.key().unwrap_or_default();
        Ok(format!("\tpayload={payload}\ttopic={}\tkey={key}\tcount=0", full_name(&message.topic)))
    }

    async fn receive_bytes(&self, of: &Arguments) -> Answer {
        let message = self.received(of).await?;
        Ok(format!("\tdigest={}", digest_of(&message.payload.data)))
    }

    async fn reader(&self, of: &Arguments) -> Answer {
        let start_message_id = Some(self.place(&of["start"]).await?);
        let builder = self
            .client_of(of)
            .await
            .reader()
            .with_topic(&of["topic"])
            .with_options(ConsumerOptions { start_message_id, ..Default::default() });
        let made = builder.into_reader().await.map_err(text)?;
        self.readers.lock().await.insert(of["key"].clone(), Arc::new(Mutex::new(made)));
        Ok(String::new())
    }

    async fn read(&self, of: &Arguments) -> Answer {
        let reader = found(&self.readers, of).await?;
        let mut reader = reader.lock().await;
        let message = within(wait_of(of), reader.next()).await?.ok_or("its stream has ended")?.map_err(text)?;
        Ok(format!("\tpayload={}", String::from_utf8_lossy(&message.payload.data)))
    }

    async fn seek(&self, of: &Arguments) -> Answer {
        let (place, time_ms) = match number(of, "time_ms") {
            Some(time_ms) => (None, Some(time_ms)),
            None => (Some(self.place(&of["place"]).await?), None),
        };
        if let Ok(reader) = found(&self.readers, of).await {
            reader.lock().await.seek(place, time_ms).await.map_err(text)?;
        } else {
            let consumer = found(&self.consumers, of).await?;
            let client = self.clients.lock().await["client"].clone();
            consumer.lock().await.seek(None, place, time_ms, client).await.map_err(text)?;
        }
        Ok(String::new())
    }

    /// One of the ends, or a message that was published here.
    async fn place(&self, word: &str) -> Result<MessageIdData, String> {
        let end = match word {
            "earliest" => u64::MAX,
            "latest" => i64::MAX as u64,
            _ => return self.ids.lock().await.get(word).cloned().ok_or(format!("nobody sent {word}")),
        };
        Ok(MessageIdData { ledger_id: end, entry_id: end, ..Default::default() })
    }

    async fn partitions(&self, of: &Arguments) -> Answer {
        let found = self.client_of(of).await.lookup_partitioned_topic(&of["topic"]).await.map_err(text)?;
        Ok(format!("\tcount={}", found.len()))
    }

    async fn close(&self, of: &Arguments) -> Answer {
        let key = &of["key"];
        if let Some(producer) = self.producers.lock().await.remove(key) {
            producer.lock().await.close().await.map_err(text)?;
        } else if let Some(consumer) = self.consumers.lock().await.remove(key) {
            consumer.lock().await.close().await.map_err(text)?;
        } else {
            self.readers.lock().await.remove(key);
        }
        Ok(String::new())
    }
}

async fn found<T>(among: &Made<T>, of: &Arguments) -> Result<Arc<Mutex<T>>, String> {
    among.lock().await.get(&of["key"]).cloned().ok_or_else(|| format!("there is no {}", of["key"]))
}

async fn within<T>(wait: Duration, what: impl Future<Output = T>) -> Result<T, String> {
    timeout(wait, what).await.map_err(|_| "Timeout".to_string())
}

fn wait_of(of: &Arguments) -> Duration {
    Duration::from_millis(number(of, "timeout_ms").unwrap())
}

fn text(problem: impl std::fmt::Display) -> String {
    problem.to_string()
}

fn number(of: &Arguments, name: &str) -> Option<u64> {
    of.get(name).map(|value| value.parse().unwrap())
}

fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// This client tells a topic as it was asked for.
fn full_name(topic: &str) -> String {
    let is_full = topic.contains("://");
    if is_full { topic.to_string() } else { format!("persistent://public/default/{topic}") }
}

/// Bytes that neither repeat nor compress to nothing.
fn seeded((byte, index): (u8, u32)) -> u8 {
    (index.wrapping_mul(2_654_435_761).rotate_left(13) ^ u32::from(byte)) as u8
}

fn digest_of(payload: &[u8]) -> String {
    digest(&SHA256, payload).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn compression_of(name: Option<&String>) -> Option<Compression> {
    match name.map(String::as_str) {
        Some("LZ4") => Some(Compression::Lz4(Default::default())),
        Some("ZLIB") => Some(Compression::Zlib(Default::default())),
        Some("ZSTD") => Some(Compression::Zstd(Default::default())),
        Some("SNAPPY") => Some(Compression::Snappy(Default::default())),
        _ => None,
    }
}

fn access_of(mode: &str) -> i32 {
    match mode {
        "Exclusive" => 1,
        "WaitForExclusive" => 2,
        "ExclusiveWithFencing" => 3,
        _ => 0,
    }
}

fn type_of(name: Option<&String>) -> SubType {
    match name.map(String::as_str) {
        Some("Shared") => SubType::Shared,
        Some("KeyShared") => SubType::KeyShared,
        _ => SubType::Exclusive,
    }
}
