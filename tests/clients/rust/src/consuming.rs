//! Scenarios of consumers of several topics, of readers, and of positions.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use pulsar::message::proto::MessageIdData;
use pulsar::{ProducerOptions, SubType, producer};
use regex::Regex;

use crate::check;
use crate::harness::{Outcome, ask, fail};
use crate::world::{
    Client, Consumer, PATIENCE, Reader, Received, World, consume, earliest, numbers, produce, produce_with,
    receive, receive_many, receive_nothing, send, send_numbered, subscribe, text, texts,
};

pub async fn multi_topics(world: World) -> Outcome {
    let client = world.connect().await?;
    let topics: Vec<_> = ["a", "b", "c"].iter().map(|suffix| world.topic_with(suffix)).collect();
    let mut consumer: Consumer = client
        .consumer()
        .with_topics(&topics)
        .with_subscription("sub")
        .with_subscription_type(SubType::Exclusive)
        .with_options(earliest())
        .build()
        .await?;
    for topic in &topics {
        let mut producer = produce(&client, topic).await?;
        for number in 0..10 {
            send(&mut producer, format!("{topic} {number}")).await?;
        }
        producer.close().await?;
    }
    let mut counts = BTreeMap::new();
    for message in receive_many(&mut consumer, 30).await? {
        let sent = text(&message);
        check!(sent.starts_with(&format!("{} ", message.topic)), "{sent:?} of {}", message.topic);
        consumer.ack(&message).await?;
        *counts.entry(message.topic).or_insert(0) += 1;
    }
    let expected: BTreeMap<_, _> = topics.into_iter().map(|topic| (topic, 10)).collect();
    check!(counts == expected, "messages by topic: {counts:?}");
    Ok(consumer.close().await?)
}

pub async fn pattern(world: World) -> Outcome {
    let client = world.connect().await?;
    let topics: Vec<_> = ["a", "b", "c"].iter().map(|suffix| world.topic_with(suffix)).collect();
    let publish = async |topic: &str| -> Outcome {
        let mut producer = produce(&client, topic).await?;
        send(&mut producer, topic).await?;
        Ok(producer.close().await?)
    };
    publish(&topics[0]).await?;
    publish(&topics[1]).await?;
    publish(&world.topic()).await?;
    let mut consumer: Consumer = client
        .consumer()
        .with_topic_regex(Regex::new(&format!("^{}-[a-z]$", regex::escape(&world.topic())))?)
        .with_lookup_namespace("public/default")
        .with_topic_refresh(Duration::from_secs(1))
        .with_subscription("sub")
        .with_subscription_type(SubType::Exclusive)
        .with_options(earliest())
        .build()
        .await?;
    let mut got = texts(&receive_many(&mut consumer, 2).await?);
    got.sort();
    check!(got == topics[..2], "two topics match, there are messages of {got:?}");
    publish(&topics[2]).await?;
    let message = receive(&mut consumer).await?;
    check!(text(&message) == topics[2], "not of the third topic: {:?}", text(&message));
    receive_nothing(&mut consumer).await?;
    Ok(consumer.close().await?)
}

async fn read(reader: &mut Reader) -> Outcome<Received> {
    match tokio::time::timeout(PATIENCE, reader.next()).await {
        Ok(Some(message)) => Ok(message?),
        Ok(None) => fail("the reader has ended"),
        Err(_) => fail(format!("nothing to read within {} s", PATIENCE.as_secs())),
    }
}

fn position(id: &MessageIdData) -> (u64, u64) {
    (id.ledger_id, id.entry_id)
}

/// Say whether there is more to read: what this client has for that is the last message's id.
async fn has_more(reader: &mut Reader, read: Option<&MessageIdData>) -> Outcome<bool> {
    let last = reader.get_last_message_id().await?;
    Ok(read.is_none_or(|id| position(id) < position(&last)))
}

pub async fn reader(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let receipts = send_numbered(&mut producer, 0..10).await?;
    let mut reader: Reader =
        client.reader().with_topic(&topic).with_options(earliest()).into_reader().await?;
    let (mut got, mut last) = (Vec::new(), None);
    while has_more(&mut reader, last.as_ref()).await? {
        let message = read(&mut reader).await?;
        got.push(text(&message));
        last = Some(message.message_id().clone());
    }
    check!(got == numbers(0..10), "from Earliest: {got:?}");
    drop(reader);

    let Some(fifth) = receipts[4].message_id.clone() else {
        return fail("a receipt without id");
    };
    let options = earliest().starting_on_message(fifth);
    let mut reader: Reader = client.reader().with_topic(&topic).with_options(options).into_reader().await?;
    let message = read(&mut reader).await?;
    // This client starts at the message, not after it.
    check!(text(&message) == "4", "from the id of the 5th comes {:?}", text(&message));
    Ok(producer.close().await?)
}

pub async fn last_message_id(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    for _ in 0..3 {
        let receipt = send(&mut producer, "text").await?;
        let Some(sent) = receipt.message_id else {
            return fail("a receipt without id");
        };
        let last = consumer.get_last_message_id().await?;
        check!(last.len() == 1, "{} last ids", last.len());
        check!(position(&last[0]) == position(&sent), "{:?}, sent last was {sent:?}", last[0]);
    }
    consumer.close().await?;
    Ok(producer.close().await?)
}

fn keyed(key: &str, value: &str) -> producer::Message {
    producer::Message {
        payload: value.as_bytes().to_vec(),
        partition_key: Some(key.to_owned()),
        ..producer::Message::default()
    }
}

async fn read_all(
    reader: &mut Reader,
    mut last: Option<MessageIdData>,
) -> Outcome<(Vec<String>, Option<MessageIdData>)> {
    let mut got = Vec::new();
    while has_more(reader, last.as_ref()).await? {
        let message = read(reader).await?;
        got.push(text(&message));
        last = Some(message.message_id().clone());
    }
    Ok((got, last))
}

pub async fn read_compacted(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut one_by_one = produce(&client, &topic).await?;
    for key in ["a", "b", "c", "d", "e"] {
        send(&mut one_by_one, keyed(key, &format!("{key}1"))).await?;
    }
    let options = ProducerOptions { batch_size: Some(4), ..ProducerOptions::default() };
    let mut batching = produce_with(&client, &topic, options).await?;
    let mut receipts = Vec::new();
    for (key, value) in [("a", "a2"), ("b", "b2"), ("c", "c2"), ("d", "")] {
        receipts.push(batching.send_non_blocking(keyed(key, value)).await?);
    }
    for receipt in receipts {
        receipt.await?;
    }
    send(&mut one_by_one, keyed("a", "a3")).await?;
    ask("compact", &[&topic]).await?;
    let options = earliest().read_compacted(true);
    let mut reader: Reader =
        client.reader().with_topic(&topic).with_options(options.clone()).into_reader().await?;
    let (mut got, last) = read_all(&mut reader, None).await?;
    // This client hands on what is compacted out of a batch as messages without a value.
    got.retain(|text| !text.is_empty());
    check!(got == ["e1", "b2", "c2", "a3"], "the compacted view has {got:?}");
    send(&mut one_by_one, keyed("f", "f1")).await?;
    let (got, _) = read_all(&mut reader, last).await?;
    check!(got == ["f1"], "after the compacted view comes {got:?}");
    let mut consumer: Consumer =
        subscribe(&client, &topic, SubType::Exclusive).with_options(options).build().await?;
    let mut got = texts(&receive_many(&mut consumer, 7).await?);
    got.retain(|text| !text.is_empty());
    check!(got == ["e1", "b2", "c2", "a3", "f1"], "a consumer of the compacted view gets {got:?}");
    receive_nothing(&mut consumer).await?;
    let mut all: Consumer =
        subscribe(&client, &topic, SubType::Exclusive).with_subscription("all").build().await?;
    let got = texts(&receive_many(&mut all, 11).await?);
    let expected = ["a1", "b1", "c1", "d1", "e1", "a2", "b2", "c2", "", "a3", "f1"];
    check!(got == expected, "one that does not read the view gets {got:?}");
    consumer.close().await?;
    all.close().await?;
    batching.close().await?;
    Ok(one_by_one.close().await?)
}

/// Send, receive and acknowledge ten messages, with a pause after the fifth.
async fn ten_acknowledged(client: &Client, topic: &str) -> Outcome<(Consumer, Vec<Received>)> {
    // For a seek the crate opens the consumer anew before it closes the former one, which connects again,
    // too: with Exclusive each can keep the other out for good, with Shared the former one's messages come
    // once more, out of order.
    let mut consumer = subscribe(client, topic, SubType::Shared).build().await?;
    let mut producer = produce(client, topic).await?;
    send_numbered(&mut producer, 0..5).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    send_numbered(&mut producer, 5..10).await?;
    producer.close().await?;
    let messages = receive_many(&mut consumer, 10).await?;
    for message in &messages {
        consumer.ack(message).await?;
    }
    Ok((consumer, messages))
}

pub async fn seek_id(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let (mut consumer, messages) = ten_acknowledged(&client, &topic).await?;
    let fourth = messages[3].message_id().clone();
    consumer.seek(None, Some(fourth), None, client.clone()).await?;
    // This client gets the message that it seeks, too.
    let mut got = texts(&receive_many(&mut consumer, 7).await?);
    got.sort();
    check!(got == numbers(3..10), "after the seek: {got:?}");
    receive_nothing(&mut consumer).await?;
    Ok(consumer.close().await?)
}

pub async fn seek_time(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let (mut consumer, messages) = ten_acknowledged(&client, &topic).await?;
    let (before, after) = (messages[4].metadata().publish_time, messages[5].metadata().publish_time);
    check!(before + 2 < after, "published at {before} and {after}");
    let between = (before + after) / 2;
    consumer.seek(None, None, Some(between), client.clone()).await?;
    let mut got = texts(&receive_many(&mut consumer, 5).await?);
    got.sort();
    check!(got == numbers(5..10), "after the seek: {got:?}");
    receive_nothing(&mut consumer).await?;
    Ok(consumer.close().await?)
}
