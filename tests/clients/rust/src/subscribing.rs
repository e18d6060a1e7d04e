//! Scenarios of subscriptions and their types.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pulsar::consumer::InitialPosition;
use pulsar::{ConsumerOptions, SubType};

use crate::check;
use crate::harness::{Outcome, fail};
use crate::world::{
    Producer, Received, World, consume, earliest, numbers, produce, receive_any, receive_many,
    receive_nothing, send_numbered, subscribe, text, texts,
};

pub async fn initial_position(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    send_numbered(&mut producer, 0..5).await?;
    let latest = ConsumerOptions::default().with_initial_position(InitialPosition::Latest);
    let open = |name: &str, options| {
        subscribe(&client, &topic, SubType::Exclusive).with_subscription(name).with_options(options).build()
    };
    let mut all = open("all", earliest()).await?;
    let mut later = open("later", latest).await?;
    send_numbered(&mut producer, 5..10).await?;
    let got = texts(&receive_many(&mut all, 10).await?);
    check!(got == numbers(0..10), "at Earliest: {got:?}");
    let got = texts(&receive_many(&mut later, 5).await?);
    check!(got == numbers(5..10), "at Latest: {got:?}");
    receive_nothing(&mut all).await?;
    all.close().await?;
    later.close().await?;
    Ok(producer.close().await?)
}

pub async fn exclusive(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let mut producer = produce(&client, &topic).await?;
    let mut first = consume(&client, &topic, SubType::Exclusive).await?;
    let second = consume(&client, &topic, SubType::Exclusive).await;
    check!(second.is_err(), "a second consumer was let in");
    send_numbered(&mut producer, 0..1).await?;
    check!(texts(&receive_many(&mut first, 1).await?) == ["0"], "the first consumer lost its place");
    first.close().await?;
    let mut second = consume(&client, &topic, SubType::Exclusive).await?;
    check!(texts(&receive_many(&mut second, 1).await?) == ["0"], "not what the first left");
    second.close().await?;
    Ok(producer.close().await?)
}

pub async fn failover(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let open = |name: &str| subscribe(&client, &topic, SubType::Failover).with_consumer_name(name).build();
    let mut one = open("one").await?;
    let mut two = open("two").await?;
    send_numbered(&mut producer, 0..10).await?;
    let messages = receive_any(&mut [&mut one, &mut two], 10).await?;
    let (mut active, mut other) = if messages[0].0 == 0 { (one, two) } else { (two, one) };
    let got: Vec<_> = messages.iter().map(|(_, message)| text(message)).collect();
    check!(messages.iter().all(|(place, _)| *place == messages[0].0), "both were active");
    check!(got == numbers(0..10), "the active consumer got {got:?}");
    send_numbered(&mut producer, 10..20).await?;
    let got = texts(&receive_many(&mut active, 10).await?);
    check!(got == numbers(10..20), "the active consumer got {got:?}");
    receive_nothing(&mut other).await?;

    active.close().await?;
    drop(active);
    send_numbered(&mut producer, 20..25).await?;
    let got = texts(&receive_many(&mut other, 15).await?);
    check!(got == numbers(10..25), "the other consumer got {got:?}");
    other.close().await?;
    Ok(producer.close().await?)
}

pub async fn shared(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let mut one = consume(&client, &topic, SubType::Shared).await?;
    let mut two = consume(&client, &topic, SubType::Shared).await?;
    send_numbered(&mut producer, 0..40).await?;
    let messages = receive_any(&mut [&mut one, &mut two], 40).await?;
    for place in [0, 1] {
        check!(messages.iter().any(|message| message.0 == place), "consumer {place} got nothing");
    }
    let got: BTreeSet<_> = messages.iter().map(|(_, message)| text(message)).collect();
    check!(got.len() == 40, "{} of 40 messages came, others twice", got.len());

    // With the other one gone, all five are with the consumer that closes.
    two.close().await?;
    drop(two);
    send_numbered(&mut producer, 40..45).await?;
    let kept = texts(&receive_many(&mut one, 5).await?);
    let mut two = consume(&client, &topic, SubType::Shared).await?;
    receive_nothing(&mut two).await?;
    one.close().await?;
    drop(one);
    let mut got = texts(&receive_many(&mut two, 5).await?);
    got.sort();
    check!(kept == numbers(40..45) && got == kept, "{kept:?} were kept, {got:?} came again");
    two.close().await?;
    Ok(producer.close().await?)
}

pub async fn shared_turns(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut one = consume(&client, &topic, SubType::Shared).await?;
    let mut two = consume(&client, &topic, SubType::Shared).await?;
    let mut producer = produce(&client, &topic).await?;
    let sending = tokio::spawn(async move {
        for number in 0..100 {
            send_numbered(&mut producer, number..number + 1).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(producer.close().await?)
    });
    let messages = receive_any(&mut [&mut one, &mut two], 100).await?;
    let turns = messages.iter().filter(|message| message.0 == 0).count();
    check!((30..=70).contains(&turns), "one got {turns}, the other {}", 100 - turns);
    one.close().await?;
    two.close().await?;
    sending.await?
}

async fn send_keyed(producer: &mut Producer, numbers: std::ops::Range<usize>) -> Outcome {
    for number in numbers {
        let message = producer.create_message().with_content(number.to_string());
        let message = message.with_key(format!("key-{}", number % 20));
        message.send_non_blocking().await?.await?;
    }
    Ok(())
}

/// Sort messages by their keys, which have to be in order.
fn by_key<'a>(messages: impl IntoIterator<Item = &'a Received>) -> Outcome<BTreeMap<String, Vec<usize>>> {
    let mut keys = BTreeMap::<String, Vec<usize>>::new();
    for message in messages {
        let Some(key) = message.key() else {
            return fail("a message has lost its key");
        };
        keys.entry(key).or_default().push(text(message).parse()?);
    }
    for (key, values) in &keys {
        check!(values.is_sorted(), "{key} is out of order: {values:?}");
    }
    Ok(keys)
}

pub async fn key_shared(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let mut one = consume(&client, &topic, SubType::KeyShared).await?;
    let mut two = consume(&client, &topic, SubType::KeyShared).await?;
    send_keyed(&mut producer, 0..100).await?;
    let messages = receive_any(&mut [&mut one, &mut two], 100).await?;
    let at = |place| messages.iter().filter(move |item| item.0 == place).map(|item| &item.1);
    let (ones, twos) = (by_key(at(0))?, by_key(at(1))?);
    check!(!ones.is_empty() && !twos.is_empty(), "one consumer has all the keys");
    check!(ones.keys().all(|key| !twos.contains_key(key)), "a key is with both consumers");
    check!(ones.len() + twos.len() == 20, "{} keys came", ones.len() + twos.len());
    for (key, values) in ones.iter().chain(&twos) {
        check!(values.len() == 5, "{key} came {} times", values.len());
    }

    one.close().await?;
    drop(one);
    send_keyed(&mut producer, 100..120).await?;
    let rest = receive_many(&mut two, 20).await?;
    check!(by_key(&rest)?.len() == 20, "the remaining consumer does not have all keys");
    check!(texts(&rest) == numbers(100..120), "out of order: {:?}", texts(&rest));
    two.close().await?;
    Ok(producer.close().await?)
}

pub async fn unsubscribe(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut producer = produce(&client, &topic).await?;
    let mut first = consume(&client, &topic, SubType::Exclusive).await?;
    send_numbered(&mut producer, 0..3).await?;
    receive_many(&mut first, 3).await?;
    first.unsubscribe().await?;
    drop(first);
    send_numbered(&mut producer, 3..5).await?;

    let mut second = subscribe(&client, &topic, SubType::Exclusive)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Latest))
        .build()
        .await?;
    send_numbered(&mut producer, 5..7).await?;
    let got = texts(&receive_many(&mut second, 2).await?);
    check!(got == numbers(5..7), "after unsubscribing: {got:?}");
    receive_nothing(&mut second).await?;
    second.close().await?;
    Ok(producer.close().await?)
}
