//! Scenarios of acknowledgements, redelivery and delay.

use std::time::{Duration, Instant};

use pulsar::SubType;
use pulsar::consumer::DeadLetterPolicy;

use crate::check;
use crate::harness::{Outcome, lacks};
use crate::world::{
    World, consume, numbers, produce, receive, receive_many, receive_nothing, send_numbered, subscribe, text,
    texts, wait_for_no_backlog,
};

pub async fn individual(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut first = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    send_numbered(&mut producer, 0..10).await?;
    for message in receive_many(&mut first, 10).await?.iter().skip(1).step_by(2) {
        first.ack(message).await?;
    }
    first.close().await?;
    drop(first);
    let mut second = consume(&client, &topic, SubType::Exclusive).await?;
    let got = texts(&receive_many(&mut second, 5).await?);
    check!(got == ["0", "2", "4", "6", "8"], "the next consumer got {got:?}");
    receive_nothing(&mut second).await?;
    second.close().await?;
    Ok(producer.close().await?)
}

pub async fn cumulative(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut first = consume(&client, &topic, SubType::Exclusive).await?;
    let mut producer = produce(&client, &topic).await?;
    send_numbered(&mut producer, 0..10).await?;
    let messages = receive_many(&mut first, 10).await?;
    first.cumulative_ack(&messages[4]).await?;
    first.close().await?;
    drop(first);
    let mut second = consume(&client, &topic, SubType::Exclusive).await?;
    let got = texts(&receive_many(&mut second, 5).await?);
    check!(got == numbers(5..10), "the next consumer got {got:?}");
    receive_nothing(&mut second).await?;
    second.close().await?;
    Ok(producer.close().await?)
}

/// Give a message back twice. It comes at once: there is no delay to set, and no count to read.
pub async fn nack(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Shared).await?;
    let mut producer = produce(&client, &topic).await?;
    send_numbered(&mut producer, 0..1).await?;
    let first = receive(&mut consumer).await?;
    for turn in 1..=2 {
        consumer.nack(&first).await?;
        let again = receive(&mut consumer).await?;
        check!(again.message_id() == first.message_id(), "redelivery {turn} is {:?}", text(&again));
    }
    consumer.ack(&first).await?;
    receive_nothing(&mut consumer).await?;
    consumer.close().await?;
    producer.close().await?;
    lacks("no redelivery count on a message; both redeliveries came")
}

pub async fn dead_letter(world: World) -> Outcome {
    let (topic, letters) = (world.topic(), world.topic_with("dead"));
    let client = world.connect().await?;
    let mut dead = consume(&client, &letters, SubType::Exclusive).await?;
    // The consumer does not hand out a message with this count of redeliveries: it is the third.
    let policy = DeadLetterPolicy { max_redeliver_count: 3, dead_letter_topic: letters };
    let mut consumer =
        subscribe(&client, &topic, SubType::Shared).with_dead_letter_policy(policy).build().await?;
    let mut producer = produce(&client, &topic).await?;
    let message = producer.create_message().with_content("poison").with_key("key");
    message.with_property("name", "value").send_non_blocking().await?.await?;
    for delivery in 1..=3 {
        let message = receive(&mut consumer).await?;
        check!(text(&message) == "poison", "delivery {delivery} is {:?}", text(&message));
        consumer.nack(&message).await?;
    }
    let letter = receive(&mut dead).await?;
    check!(text(&letter) == "poison", "the dead letter is {:?}", text(&letter));
    check!(letter.key().as_deref() == Some("key"), "its key is {:?}", letter.key());
    let property = letter.metadata().properties.iter().find(|pair| pair.key == "name");
    check!(property.is_some_and(|pair| pair.value == "value"), "its property is {property:?}");
    receive_nothing(&mut consumer).await?;
    wait_for_no_backlog(&topic).await?;
    consumer.close().await?;
    dead.close().await?;
    Ok(producer.close().await?)
}

pub async fn delayed(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = consume(&client, &topic, SubType::Shared).await?;
    let mut producer = produce(&client, &topic).await?;
    let message = producer.create_message().with_content("delayed").delay(Duration::from_secs(2))?;
    let sent = Instant::now();
    message.send_non_blocking().await?.await?;
    send_numbered(&mut producer, 0..1).await?;
    let first = receive(&mut consumer).await?;
    check!(text(&first) == "0", "first comes {:?}", text(&first));
    let second = receive(&mut consumer).await?;
    check!(text(&second) == "delayed", "then comes {:?}", text(&second));
    let waited = sent.elapsed().as_millis();
    check!((1_500..=10_000).contains(&waited), "the delayed message came after {waited} ms");
    consumer.close().await?;
    Ok(producer.close().await?)
}
