//! Scenarios in which the service moves a topic or is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use pulsar::SubType;
use pulsar::producer::SendFuture;
use tokio::task::JoinHandle;

use crate::check;
use crate::harness::{Outcome, ask, fail};
use crate::world::{Client, Consumer, Producer, World, consume, produce, text};

const COUNT: usize = 300;
const PAUSE: Duration = Duration::from_millis(10);

/// Sends without waiting, and how far it got; it stops at `until` until that grows.
struct Sending {
    sent: Arc<AtomicUsize>,
    until: Arc<AtomicUsize>,
    task: JoinHandle<Outcome<Vec<Outcome>>>,
}

impl Sending {
    fn start(mut producer: Producer, until: usize) -> Self {
        let sent = Arc::new(AtomicUsize::new(0));
        let until = Arc::new(AtomicUsize::new(until));
        let (progress, bound) = (Arc::clone(&sent), Arc::clone(&until));
        let task = tokio::spawn(async move {
            let mut receipts = Vec::new();
            for number in 0..COUNT {
                while number >= bound.load(Ordering::Relaxed) {
                    tokio::time::sleep(PAUSE).await;
                }
                receipts.push(producer.send_non_blocking(number.to_string()).await);
                progress.store(number + 1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
            let mut outcomes = Vec::new();
            for receipt in receipts {
                outcomes.push(settle(receipt).await);
            }
            producer.close().await?;
            Ok(outcomes)
        });
        Sending { sent, until, task }
    }

    async fn reach(&self, count: usize) {
        while self.sent.load(Ordering::Relaxed) < count {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn settle(receipt: Result<SendFuture, pulsar::Error>) -> Outcome {
    receipt?.await?;
    Ok(())
}

/// Receive until all of `COUNT` messages came, or none for 160 s, since a kill waits for all programs; return first
/// arrivals in their order.
async fn receive_all(mut consumer: Consumer, again: Option<(Client, String)>) -> Outcome<Vec<usize>> {
    let (mut seen, mut arrivals) = (BTreeSet::new(), Vec::new());
    while arrivals.len() < COUNT {
        let message = match (tokio::time::timeout(Duration::from_secs(160), consumer.next()).await, &again) {
            (Ok(Some(message)), _) => message?,
            // A consumer of this client connects again by itself unless the dying broker resets the
            // attempt, which the client does not repeat: then the stream ends.
            (Ok(None), Some((client, topic))) => {
                consumer = consume(client, topic, SubType::Exclusive).await?;
                continue;
            }
            (Ok(None), None) => return fail(format!("the consumer ended after {} messages", seen.len())),
            (Err(_), _) => break,
        };
        consumer.ack(&message).await?;
        let number = text(&message).parse()?;
        if seen.insert(number) {
            arrivals.push(number);
        }
    }
    consumer.close().await?;
    Ok(arrivals)
}

async fn open(world: &World) -> Outcome<(Client, Producer, Consumer)> {
    let client = world.connect_with(Duration::from_secs(20), None).await?;
    let consumer = consume(&client, &world.topic(), SubType::Exclusive).await?;
    let producer = produce(&client, &world.topic()).await?;
    Ok((client, producer, consumer))
}

pub async fn moved(world: World) -> Outcome {
    let (_client, producer, consumer) = open(&world).await?;
    let receiving = tokio::spawn(receive_all(consumer, None));
    let sending = Sending::start(producer, COUNT);
    for count in [100, 200] {
        sending.reach(count).await;
        ask("move", &[&world.topic()]).await?;
    }
    for (number, outcome) in sending.task.await??.into_iter().enumerate() {
        check!(outcome.is_ok(), "send {number} failed: {outcome:?}");
    }
    let arrivals = receiving.await??;
    check!(arrivals.len() == COUNT, "{} of {COUNT} messages arrived", arrivals.len());
    let broken = arrivals.windows(2).find(|pair| pair[0] > pair[1]);
    check!(broken.is_none(), "out of order: {broken:?}");
    Ok(())
}

pub async fn killed(world: World) -> Outcome {
    let (client, producer, consumer) = open(&world).await?;
    let receiving = tokio::spawn(receive_all(consumer, Some((client, world.topic()))));
    // The last 50 messages are for the broker that was started again.
    let sending = Sending::start(producer, COUNT - 50);
    sending.reach(100).await;
    ask("kill", &[&world.topic()]).await?;
    sending.until.store(COUNT, Ordering::Relaxed);
    let outcomes = sending.task.await??;
    for (number, outcome) in outcomes.iter().enumerate().skip(COUNT - 50) {
        check!(outcome.is_ok(), "send {number}, after the kill, failed: {outcome:?}");
    }
    let arrivals: BTreeSet<_> = receiving.await??.into_iter().collect();
    for (number, outcome) in outcomes.iter().enumerate() {
        check!(outcome.is_err() || arrivals.contains(&number), "message {number} was lost");
    }
    Ok(())
}
