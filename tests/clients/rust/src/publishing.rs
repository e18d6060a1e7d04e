//! Scenarios of producers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use futures::future::try_join_all;
use pulsar::compression::Compression;
use pulsar::message::proto::{CompressionType, ProducerAccessMode};
use pulsar::routing_policy::RoutingPolicy;
use pulsar::{ProducerOptions, SubType, producer};

use crate::check;
use crate::harness::{Outcome, ask, fail};
use crate::world::{
    PATIENCE, World, consume, numbers, produce, produce_with, receive, receive_many, receive_nothing, send,
    send_numbered, text, texts, wait_for_no_backlog,
};

pub async fn plain(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let receipts = send_numbered(&mut producer, 0..10).await?;

    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let messages = receive_many(&mut consumer, 10).await?;
    check!(texts(&messages) == numbers(0..10), "wrong messages: {:?}", texts(&messages));
    let ids: Vec<_> = messages
        .iter()
        .map(|message| (message.message_id().ledger_id, message.message_id().entry_id))
        .collect();
    check!(ids.is_sorted_by(|one, next| one < next), "the ids do not ascend: {ids:?}");
    let sent: Vec<_> = receipts
        .into_iter()
        .filter_map(|receipt| receipt.message_id)
        .map(|id| (id.ledger_id, id.entry_id))
        .collect();
    check!(ids == sent, "received ids {ids:?}, the receipts say {sent:?}");
    // A producer does not tell its name, its messages do.
    for message in &messages {
        check!(!message.metadata().producer_name.is_empty(), "the producer has no name");
        consumer.ack(message).await?;
    }
    wait_for_no_backlog(&topic).await?;
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn compressed(world: World, method: Compression, kind: CompressionType) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let options = ProducerOptions { compression: Some(method), ..ProducerOptions::default() };
    let mut producer = produce_with(&client, &topic, options).await?;
    let payload = |number: usize| (0..10_000).map(|index| (index / 7 + number) as u8).collect::<Vec<_>>();
    for number in 0..10 {
        send(&mut producer, payload(number)).await?;
    }
    for (number, message) in receive_many(&mut consumer, 10).await?.iter().enumerate() {
        check!(message.payload.data == payload(number), "message {number} is not what was sent");
        let metadata = message.metadata();
        check!(metadata.compression() == kind, "compressed as {:?}", metadata.compression());
        let size = metadata.uncompressed_size;
        check!(size == Some(10_000), "the uncompressed size is {size:?}");
        consumer.ack(message).await?;
    }
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn batches(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let options = ProducerOptions {
        batch_size: Some(20),
        batch_timeout: Some(Duration::from_millis(100)),
        ..ProducerOptions::default()
    };
    let mut producer = produce_with(&client, &topic, options).await?;
    let mut receipts = Vec::new();
    for number in 0..100 {
        receipts.push(producer.send_non_blocking(number.to_string()).await?);
    }
    try_join_all(receipts).await?;
    let messages = receive_many(&mut consumer, 100).await?;
    check!(texts(&messages) == numbers(0..100), "wrong messages: {:?}", texts(&messages));
    let mut entries = BTreeMap::new();
    for message in &messages {
        let id = message.message_id();
        let indexes: &mut Vec<_> = entries.entry((id.ledger_id, id.entry_id)).or_default();
        indexes.push(id.batch_index());
        consumer.ack(message).await?;
    }
    for indexes in entries.values() {
        check!(indexes.len() <= 20, "a batch of {} messages", indexes.len());
        check!(indexes.iter().copied().eq(0..indexes.len() as i32), "batch indexes {indexes:?}");
    }
    check!(entries.len() < 100, "there are no batches");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn keys(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    let keyed = producer.create_message().with_content("both").with_key("kéy");
    keyed.with_ordering_key(b"\x00order\xff").send_non_blocking().await?.await?;
    send(&mut producer, "none").await?;

    let both = receive(&mut consumer).await?;
    let none = receive(&mut consumer).await?;
    check!(both.key().as_deref() == Some("kéy"), "the key is {:?}", both.key());
    check!(!both.has_base64_encoded_key(), "the key came as bytes");
    let order = both.metadata().ordering_key.clone();
    check!(order.as_deref() == Some(b"\x00order\xff"), "the ordering key is {order:?}");
    check!(none.key().is_none(), "a message without key has {:?}", none.key());
    let order = none.metadata().ordering_key.clone();
    check!(order.is_none(), "a message without ordering key has {order:?}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn properties(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    let sent = BTreeMap::from([("plain", "value"), ("empty", ""), ("größe", "日本 🚀")]);
    let mut message = producer.create_message().with_content("text");
    for (name, value) in &sent {
        message = message.with_property(*name, *value);
    }
    message.send_non_blocking().await?.await?;

    let message = receive(&mut consumer).await?;
    let properties = &message.metadata().properties;
    let got: BTreeMap<&str, &str> =
        properties.iter().map(|pair| (pair.key.as_str(), pair.value.as_str())).collect();
    check!(got == sent, "the properties are {got:?}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn event_time(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    let message = producer.create_message().with_content("text").event_time(1_234_567_890_123);
    message.send_non_blocking().await?.await?;

    let message = receive(&mut consumer).await?;
    let event = message.metadata().event_time;
    check!(event == Some(1_234_567_890_123), "the event time is {event:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let published = message.metadata().publish_time;
    check!(now.abs_diff(published) < 30_000, "published at {published}, and now is {now}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn too_large(world: World) -> Outcome {
    let topic = world.topic();
    // The client does not know the limit: it sends again until its time is up.
    let client = world.connect_with(Duration::from_secs(2), None).await?;
    let mut producer = produce(&client, &topic).await?;
    let large = send(&mut producer, vec![b'x'; 6_000_000]).await;
    check!(large.is_err(), "a message of 6,000,000 bytes was stored");
    send(&mut producer, "small").await?;

    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let message = receive(&mut consumer).await?;
    check!(text(&message) == "small", "{} bytes came", message.payload.data.len());
    receive_nothing(&mut consumer).await?;
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn producer_name(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let open = || client.producer().with_topic(&topic).with_name("in-use").build();
    let mut first = open().await?;
    check!(open().await.is_err(), "a second producer has the name of the first");
    send(&mut first, "first").await?;
    first.close().await?;
    let mut second = open().await?;
    send(&mut second, "second").await?;

    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    for expected in ["first", "second"] {
        let message = receive(&mut consumer).await?;
        check!(text(&message) == expected, "{:?} came, not {expected:?}", text(&message));
        let name = &message.metadata().producer_name;
        check!(name == "in-use", "the producer's name is {name:?}");
    }
    consumer.close().await?;
    Ok(second.close().await?)
}

fn access(mode: ProducerAccessMode) -> ProducerOptions {
    ProducerOptions { access_mode: Some(mode as i32), ..ProducerOptions::default() }
}

pub async fn access_exclusive(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let open = || produce_with(&client, &topic, access(ProducerAccessMode::Exclusive));
    let mut first = open().await?;
    check!(open().await.is_err(), "a second Exclusive producer was let in");
    send(&mut first, "first").await?;
    first.close().await?;
    let mut second = open().await?;
    send(&mut second, "second").await?;
    Ok(second.close().await?)
}

pub async fn access_wait(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut holder = produce_with(&client, &topic, access(ProducerAccessMode::Exclusive)).await?;
    let waiting = {
        let (client, topic) = (client.clone(), topic.clone());
        let options = access(ProducerAccessMode::WaitForExclusive);
        tokio::spawn(async move { produce_with(&client, &topic, options).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    check!(!waiting.is_finished(), "the waiting producer is ready while there is a holder");
    send(&mut holder, "holder").await?;
    holder.close().await?;
    let mut waiter = tokio::time::timeout(PATIENCE, waiting).await???;
    send(&mut waiter, "waiter").await?;
    let got = texts(&receive_many(&mut consumer, 2).await?);
    check!(got == ["holder", "waiter"], "wrong messages: {got:?}");
    consumer.close().await?;
    Ok(waiter.close().await?)
}

pub async fn access_fencing(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    // On a connection of its own: a service may close that of a producer which still sends.
    let former = world.connect_once().await?;
    let mut holder = produce_with(&former, &topic, access(ProducerAccessMode::Exclusive)).await?;
    send(&mut holder, "holder").await?;
    let options = access(ProducerAccessMode::ExclusiveWithFencing);
    let mut fencing = produce_with(&client, &topic, options).await?;
    check!(send(&mut holder, "fenced").await.is_err(), "the former holder still sends");
    send(&mut fencing, "fencing").await?;
    let got = texts(&receive_many(&mut consumer, 2).await?);
    check!(got == ["holder", "fencing"], "wrong messages: {got:?}");
    receive_nothing(&mut consumer).await?;
    consumer.close().await?;
    Ok(fencing.close().await?)
}

fn round_robin() -> ProducerOptions {
    // Without a policy this client does not route by key.
    ProducerOptions { routing_policy: Some(RoutingPolicy::RoundRobin), ..ProducerOptions::default() }
}

pub async fn partitioned(world: World) -> Outcome {
    let topic = world.topic();
    ask("partition", &[&topic, "3"]).await?;
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce_with(&client, &topic, round_robin()).await?;
    for number in 0..50 {
        let message = producer.create_message().with_content(number.to_string());
        let message = message.with_key(format!("key-{}", number % 10));
        message.send_non_blocking().await?.await?;
    }
    let mut places = BTreeMap::<String, BTreeSet<String>>::new();
    let mut values = BTreeMap::<String, Vec<usize>>::new();
    for message in receive_many(&mut consumer, 50).await? {
        let Some(key) = message.key() else {
            return fail("a message has lost its key");
        };
        places.entry(key.clone()).or_default().insert(message.topic.clone());
        values.entry(key).or_default().push(text(&message).parse()?);
        consumer.ack(&message).await?;
    }
    check!(places.len() == 10, "{} keys came", places.len());
    for (key, partitions) in &places {
        check!(partitions.len() == 1, "{key} is in {partitions:?}");
        check!(values[key].is_sorted(), "{key} is out of order: {:?}", values[key]);
    }

    send_numbered(&mut producer, 0..60).await?;
    let messages = receive_many(&mut consumer, 60).await?;
    let reached: BTreeSet<_> = messages.iter().map(|message| message.topic.clone()).collect();
    let expected: BTreeSet<_> = (0..3).map(|index| format!("{topic}-partition-{index}")).collect();
    check!(reached == expected, "round robin reached {reached:?}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn partitions_grow(world: World) -> Outcome {
    let topic = world.topic();
    ask("partition", &[&topic, "2"]).await?;
    let client = world.connect().await?;
    let mut early = produce_with(&client, &topic, round_robin()).await?;
    let count = early.partitions().map(|partitions| partitions.len());
    check!(count == Some(2), "the producer has {count:?} of 2 partitions");
    ask("partition", &[&topic, "4"]).await?;

    let mut producer = produce_with(&client, &topic, round_robin()).await?;
    let count = producer.partitions().map(|partitions| partitions.len());
    check!(count == Some(4), "a producer opened later has {count:?} of 4 partitions");
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    check!(consumer.topics().len() == 4, "a consumer opened later has {:?}", consumer.topics());
    send_numbered(&mut producer, 0..8).await?;
    let messages = receive_many(&mut consumer, 8).await?;
    let reached: BTreeSet<_> = messages.iter().map(|message| message.topic.clone()).collect();
    check!(reached.len() == 4, "messages came from {reached:?}");
    consumer.close().await?;
    early.close().await?;
    Ok(producer.close().await?)
}

pub async fn non_persistent(world: World) -> Outcome {
    let topic = world.non_persistent_topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    // A consumer's first permits are not acknowledged: an answer to a later request says they are there.
    consumer.check_connection().await?;
    send_numbered(&mut producer, 0..10).await?;
    let got = texts(&receive_many(&mut consumer, 10).await?);
    check!(got == numbers(0..10), "wrong messages: {got:?}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

/// The client numbers by itself, from 0 in each producer: the second one sends 0 to 14 instead of 5 to 14.
pub async fn deduplication(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    ask("deduplicate", &[&topic]).await?;
    for count in [10, 15] {
        let mut producer = client.producer().with_topic(&topic).with_name("same").build().await?;
        for receipt in send_numbered(&mut producer, 0..count).await?.iter().enumerate() {
            let (number, sequence) = (receipt.0 as u64, receipt.1.sequence_id);
            check!(sequence == number, "message {number} has the sequence id {sequence}");
        }
        producer.close().await?;
    }
    let got = texts(&receive_many(&mut consumer, 15).await?);
    check!(got == numbers(0..15), "wrong messages: {got:?}");
    receive_nothing(&mut consumer).await?;
    Ok(consumer.close().await?)
}

pub async fn end_of_topic(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_with(Duration::from_secs(5), Some(0)).await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    send_numbered(&mut producer, 0..3).await?;
    ask("terminate", &[&topic]).await?;
    let late = producer::Message { payload: b"late".to_vec(), ..producer::Message::default() };
    check!(send(&mut producer, late).await.is_err(), "a send after the end was stored");
    for expected in numbers(0..3) {
        let message = receive(&mut consumer).await?;
        check!(text(&message) == expected, "{:?} came, not {expected:?}", text(&message));
        consumer.ack(&message).await?;
    }
    // The consumer is a stream, which ends with its topic.
    match tokio::time::timeout(PATIENCE, consumer.next()).await {
        Ok(None) => Ok(()),
        Ok(Some(message)) => fail(format!("a message after the end: {:?}", message.map(|m| text(&m)))),
        Err(_) => fail("the consumer was not told that the topic has ended"),
    }
}
