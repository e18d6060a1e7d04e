//! Short forms of what most scenarios do with clients, producers and consumers.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::StreamExt;
use pulsar::consumer::InitialPosition;
use pulsar::message::proto::CommandSendReceipt;
use pulsar::{
    ConnectionRetryOptions, ConsumerOptions, OperationRetryOptions, ProducerOptions, Pulsar,
    SerializeMessage, SubType, TokioExecutor,
};

use crate::harness::{Outcome, ask, fail};

pub type Client = Pulsar<TokioExecutor>;
pub type Producer = pulsar::Producer<TokioExecutor>;
pub type ConsumerBuilder = pulsar::ConsumerBuilder<TokioExecutor>;
pub type Consumer = pulsar::Consumer<Vec<u8>, TokioExecutor>;
pub type Reader = pulsar::reader::Reader<Vec<u8>, TokioExecutor>;
pub type Received = pulsar::consumer::Message<Vec<u8>>;

/// How long a message or the service may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long nothing has to come for there to be nothing.
pub const SILENCE: Duration = Duration::from_millis(400);

/// A scenario's service and topics.
#[derive(Clone)]
pub struct World {
    url: String,
    stem: String,
}

impl World {
    pub fn new(url: &str, prefix: &str, scenario: &str) -> Self {
        World { url: url.to_owned(), stem: format!("public/default/{prefix}-{scenario}") }
    }

    pub fn topic(&self) -> String {
        format!("persistent://{}", self.stem)
    }

    pub fn topic_with(&self, suffix: &str) -> String {
        format!("persistent://{}-{suffix}", self.stem)
    }

    pub fn non_persistent_topic(&self) -> String {
        format!("non-persistent://{}", self.stem)
    }

    pub async fn connect(&self) -> Outcome<Client> {
        self.connect_with(Duration::from_secs(10), None).await
    }

    /// Connect a client that takes the first refusal for an answer; others try again.
    pub async fn connect_once(&self) -> Outcome<Client> {
        self.connect_with(Duration::from_secs(10), Some(0)).await
    }

    pub async fn connect_with(&self, timeout: Duration, retries: Option<u32>) -> Outcome<Client> {
        let connections = ConnectionRetryOptions {
            max_backoff: Duration::from_secs(1),
            max_retries: 60,
            ..ConnectionRetryOptions::default()
        };
        let operations = OperationRetryOptions {
            operation_timeout: timeout,
            retry_delay: Duration::from_millis(200),
            max_retries: retries,
        };
        Ok(Pulsar::builder(&self.url, TokioExecutor)
            .with_connection_retry_options(connections)
            .with_operation_retry_options(operations)
            .build()
            .await?)
    }
}

/// Open a producer that waits where its queue is full.
pub async fn produce(client: &Client, topic: &str) -> Outcome<Producer> {
    produce_with(client, topic, ProducerOptions::default()).await
}

pub async fn produce_with(client: &Client, topic: &str, options: ProducerOptions) -> Outcome<Producer> {
    let options = ProducerOptions { block_queue_if_full: true, ..options };
    Ok(client.producer().with_topic(topic).with_options(options).build().await?)
}

pub fn earliest() -> ConsumerOptions {
    ConsumerOptions::default().with_initial_position(InitialPosition::Earliest)
}

/// Name a subscription of a topic that starts at Earliest.
pub fn subscribe(client: &Client, topic: &str, kind: SubType) -> ConsumerBuilder {
    client
        .consumer()
        .with_topic(topic)
        .with_subscription("sub")
        .with_subscription_type(kind)
        .with_options(earliest())
}

pub async fn consume(client: &Client, topic: &str, kind: SubType) -> Outcome<Consumer> {
    Ok(subscribe(client, topic, kind).build().await?)
}

/// Send one message and wait for its receipt.
pub async fn send<M: SerializeMessage + Sized>(
    producer: &mut Producer,
    message: M,
) -> Outcome<CommandSendReceipt> {
    Ok(producer.send_non_blocking(message).await?.await?)
}

/// Send the numbers of a range as texts, each awaited.
pub async fn send_numbered(
    producer: &mut Producer,
    numbers: std::ops::Range<usize>,
) -> Outcome<Vec<CommandSendReceipt>> {
    let mut receipts = Vec::new();
    for number in numbers {
        receipts.push(send(producer, number.to_string()).await?);
    }
    Ok(receipts)
}

pub async fn receive(consumer: &mut Consumer) -> Outcome<Received> {
    match tokio::time::timeout(PATIENCE, consumer.next()).await {
        Ok(Some(message)) => Ok(message?),
        Ok(None) => fail("the consumer has ended, a message was expected"),
        Err(_) => fail(format!("no message within {} s", PATIENCE.as_secs())),
    }
}

pub async fn receive_many(consumer: &mut Consumer, count: usize) -> Outcome<Vec<Received>> {
    let mut messages = Vec::new();
    while messages.len() < count {
        match receive(consumer).await {
            Ok(message) => messages.push(message),
            Err(_) => {
                let got = texts(&messages);
                return fail(format!("{} of {count} messages came: {got:?}", messages.len()));
            }
        }
    }
    Ok(messages)
}

/// Receive `count` messages from several consumers; each comes with its consumer's place.
pub async fn receive_any(consumers: &mut [&mut Consumer], count: usize) -> Outcome<Vec<(usize, Received)>> {
    let mut messages = Vec::new();
    while messages.len() < count {
        let next = poll_fn(|context| {
            for (place, consumer) in consumers.iter_mut().enumerate() {
                if let Poll::Ready(item) = consumer.poll_next_unpin(context) {
                    return Poll::Ready((place, item));
                }
            }
            Poll::Pending
        });
        match tokio::time::timeout(PATIENCE, next).await {
            Ok((place, Some(message))) => {
                let message = message?;
                consumers[place].ack(&message).await?;
                messages.push((place, message));
            }
            Ok((place, None)) => return fail(format!("consumer {place} has ended")),
            Err(_) => return fail(format!("{} of {count} messages came", messages.len())),
        }
    }
    Ok(messages)
}

pub async fn receive_nothing(consumer: &mut Consumer) -> Outcome {
    match tokio::time::timeout(SILENCE, consumer.next()).await {
        Ok(Some(message)) => fail(format!("nothing was expected, {:?} came", text(&message?))),
        Ok(None) => fail("the consumer has ended"),
        Err(_) => Ok(()),
    }
}

pub fn text(message: &Received) -> String {
    String::from_utf8_lossy(&message.payload.data).into_owned()
}

pub fn texts(messages: &[Received]) -> Vec<String> {
    messages.iter().map(text).collect()
}

pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Wait until a subscription has nothing left to acknowledge.
pub async fn wait_for_no_backlog(topic: &str) -> Outcome {
    let end = Instant::now() + PATIENCE;
    loop {
        let backlog = ask("backlog", &[topic, "sub"]).await?;
        if backlog == "0" {
            return Ok(());
        }
        if Instant::now() > end {
            return fail(format!("the backlog stays at {backlog}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
