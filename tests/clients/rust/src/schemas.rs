//! Scenarios of schemas. The crate registers and looks up schemas; its users write and read the bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type as FieldType};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use pulsar::message::proto::{KeyValue, Schema, schema::Type};
use pulsar::{ProducerOptions, SubType};
use serde_json::{Value, json};

use crate::check;
use crate::harness::{Ending, Outcome, ask, fail};
use crate::world::{
    Client, PATIENCE, Producer, World, earliest, produce, produce_with, receive, receive_many, send, subscribe,
};

fn schema(kind: Type, definition: Vec<u8>, properties: &[(&str, &str)]) -> Schema {
    let properties = properties
        .iter()
        .map(|(key, value)| KeyValue { key: (*key).to_owned(), value: (*value).to_owned() })
        .collect();
    Schema { name: "schema".to_owned(), schema_data: definition, r#type: kind as i32, properties }
}

/// The definition of a record in Avro, which JSON and PROTOBUF schemas have, too.
fn record() -> Vec<u8> {
    json!({
        "type": "record",
        "name": "Reading",
        "namespace": "magnetar",
        "fields": [{"name": "sensor", "type": "string"}, {"name": "value", "type": "long"}],
    })
    .to_string()
    .into_bytes()
}

/// Send payloads under a schema, and expect them of a consumer with that schema.
async fn round_trip(world: World, schema: Schema, payloads: &[Vec<u8>]) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = subscribe(&client, &topic, SubType::Exclusive)
        .with_options(earliest().with_schema(schema.clone()))
        .build()
        .await?;
    let options = ProducerOptions { schema: Some(schema.clone()), ..ProducerOptions::default() };
    let mut producer = produce_with(&client, &topic, options).await?;
    for payload in payloads {
        send(&mut producer, payload.clone()).await?;
    }
    for payload in payloads {
        let message = receive(&mut consumer).await?;
        let got = &message.payload.data;
        check!(got == payload, "{payload:?} was sent, {got:?} came");
        let version = message.metadata().schema_version.clone();
        check!(version.is_some(), "a message without schema version");
        let Some(stored) = consumer.get_schema(&topic, version).await? else {
            return fail("the service has no schema");
        };
        check!(stored.r#type == schema.r#type, "the service has a schema of type {}", stored.r#type);
        let (one, other) = (&stored.schema_data, &schema.schema_data);
        check!(one == other, "the definition is {:?}", String::from_utf8_lossy(one));
        consumer.ack(&message).await?;
    }
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn string(world: World) -> Outcome {
    let payloads = ["text", "", "日本 🚀"].map(|text| text.as_bytes().to_vec());
    round_trip(world, schema(Type::String, vec![], &[]), &payloads).await
}

pub async fn int64(world: World) -> Outcome {
    let payloads = [0, -1, i64::MAX, i64::MIN].map(|number| number.to_be_bytes().to_vec());
    round_trip(world, schema(Type::Int64, vec![], &[]), &payloads).await
}

pub async fn json(world: World) -> Outcome {
    let payload = json!({"sensor": "größe", "value": -7}).to_string().into_bytes();
    round_trip(world, schema(Type::Json, record(), &[]), &[payload]).await
}

/// Write a long as Avro does: small absolute values are short.
fn write_long(target: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        target.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    target.push(rest as u8);
}

fn read_long(source: &mut &[u8]) -> Outcome<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, rest)) = source.split_first() else {
            return fail("the Avro record is too short");
        };
        *source = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    fail("an Avro long has more than ten bytes")
}

fn avro_reading(sensor: &str, value: i64) -> Vec<u8> {
    let mut payload = Vec::new();
    write_long(&mut payload, sensor.len() as i64);
    payload.extend_from_slice(sensor.as_bytes());
    write_long(&mut payload, value);
    payload
}

pub async fn avro(world: World) -> Outcome {
    let payloads = [avro_reading("größe", -7), avro_reading("", i64::MAX)];
    round_trip(world, schema(Type::Avro, record(), &[]), &payloads).await
}

#[derive(Clone, PartialEq, prost::Message)]
struct Reading {
    #[prost(string, tag = "1")]
    sensor: String,
    #[prost(int64, tag = "2")]
    value: i64,
}

fn protobuf_reading() -> Vec<u8> {
    Reading { sensor: "größe".to_owned(), value: -7 }.encode_to_vec()
}

pub async fn protobuf(world: World) -> Outcome {
    let schema = schema(Type::Protobuf, record(), &[]);
    round_trip(world, schema, &[protobuf_reading()]).await
}

/// Describe `Reading` as PROTOBUF_NATIVE does: all files, and the names of the root file and message.
fn native_definition() -> Vec<u8> {
    let field = |name: &str, number, kind: FieldType| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional as i32),
        r#type: Some(kind as i32),
        ..FieldDescriptorProto::default()
    };
    let message = DescriptorProto {
        name: Some("Reading".to_owned()),
        field: vec![field("sensor", 1, FieldType::String), field("value", 2, FieldType::Int64)],
        ..DescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("reading.proto".to_owned()),
        package: Some("magnetar".to_owned()),
        message_type: vec![message],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    };
    let files = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    json!({
        "fileDescriptorSet": base64::engine::general_purpose::STANDARD.encode(files),
        "rootMessageTypeName": "magnetar.Reading",
        "rootFileDescriptorName": "reading.proto",
    })
    .to_string()
    .into_bytes()
}

pub async fn protobuf_native(world: World) -> Outcome {
    let schema = schema(Type::ProtobufNative, native_definition(), &[]);
    round_trip(world, schema, &[protobuf_reading()]).await
}

/// Put two parts behind each other, each behind its length.
fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [key, value] {
        bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes
}

pub async fn key_value(world: World) -> Outcome {
    let properties = [
        ("key.schema.name", "key"),
        ("key.schema.type", "STRING"),
        ("key.schema.properties", "{}"),
        ("value.schema.name", "value"),
        ("value.schema.type", "AVRO"),
        ("value.schema.properties", "{}"),
        ("kv.encoding.type", "INLINE"),
    ];
    let schema = schema(Type::KeyValue, pair(b"", &record()), &properties);
    let payload = pair("schlüssel".as_bytes(), &avro_reading("größe", -7));
    round_trip(world, schema, &[payload]).await
}

/// Read an Avro record of texts and longs by nothing but its definition.
fn read_record(definition: &[u8], mut payload: &[u8]) -> Outcome<BTreeMap<String, Value>> {
    let definition: Value = serde_json::from_slice(definition)?;
    let Some(fields) = definition["fields"].as_array() else {
        return fail(format!("not the definition of a record: {definition}"));
    };
    let mut record = BTreeMap::new();
    for field in fields {
        let number = read_long(&mut payload)?;
        let value = match field["type"].as_str() {
            Some("long") => Value::from(number),
            Some("string") if number >= 0 && number as usize <= payload.len() => {
                let (text, rest) = payload.split_at(number as usize);
                payload = rest;
                Value::from(String::from_utf8(text.to_vec())?)
            }
            _ => return fail(format!("not a field of this program: {field}")),
        };
        record.insert(field["name"].as_str().unwrap_or_default().to_owned(), value);
    }
    check!(payload.is_empty(), "{} bytes are left", payload.len());
    Ok(record)
}

/// The crate has no AUTO_CONSUME, its consumers ask for a message's schema instead.
pub async fn auto(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let schema = schema(Type::Avro, record(), &[]);
    let options = ProducerOptions { schema: Some(schema), ..ProducerOptions::default() };
    let mut producer = produce_with(&client, &topic, options).await?;
    send(&mut producer, avro_reading("größe", -7)).await?;
    let mut consumer = subscribe(&client, &topic, SubType::Exclusive).build().await?;
    let message = receive(&mut consumer).await?;
    let version = message.metadata().schema_version.clone();
    check!(version.is_some(), "a message without schema version");
    let Some(schema) = consumer.get_schema(&topic, version).await? else {
        return fail("the service has no schema");
    };
    check!(schema.r#type() == Type::Avro, "the schema is of type {:?}", schema.r#type());
    let fields = read_record(&schema.schema_data, &message.payload.data)?;
    let expected = [("sensor", Value::from("größe")), ("value", Value::from(-7))];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    check!(fields == expected, "the fields are {fields:?}");
    consumer.close().await?;
    Ok(producer.close().await?)
}

/// The definition of the record with a text more.
fn with_place(default: Option<&str>) -> Schema {
    let mut definition: Value = serde_json::from_slice(&record()).unwrap_or_default();
    let mut field = json!({"name": "place", "type": "string"});
    if let Some(default) = default {
        field["default"] = Value::from(default);
    }
    if let Some(fields) = definition["fields"].as_array_mut() {
        fields.push(field);
    }
    schema(Type::Avro, definition.to_string().into_bytes(), &[])
}

async fn produce_under(client: &Client, topic: &str, schema: Schema) -> Outcome<Producer> {
    let options = ProducerOptions { schema: Some(schema), ..ProducerOptions::default() };
    produce_with(client, topic, options).await
}

/// Whether an attempt was refused because of its schema; other refusals fail the scenario.
fn is_incompatible<T>(attempt: Outcome<T>) -> Outcome<bool> {
    match attempt {
        Ok(_) => Ok(false),
        Err(Ending::Fail(reason)) if reason.contains("IncompatibleSchema") => Ok(true),
        Err(ending) => Err(ending),
    }
}

pub async fn evolution(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect().await?;
    let mut consumer = subscribe(&client, &topic, SubType::Exclusive).build().await?;
    let first = || schema(Type::Avro, record(), &[]);
    let mut placed = avro_reading("größe", -7);
    placed.extend([8]);
    placed.extend(b"Rome");
    for (schema, payload) in [
        (first(), avro_reading("größe", -7)),
        (with_place(Some("")), placed),
        (first(), avro_reading("größe", -8)),
    ] {
        let mut producer = produce_under(&client, &topic, schema).await?;
        send(&mut producer, payload).await?;
        producer.close().await?;
    }
    let mut versions = Vec::new();
    for message in receive_many(&mut consumer, 3).await? {
        versions.push(message.metadata().schema_version.clone());
    }
    check!(versions[0] != versions[1], "both schemas have version {:?}", versions[0]);
    check!(versions[0] == versions[2], "the first schema has versions {:?} and {:?}", versions[0], versions[2]);
    let Some(stored) = consumer.get_schema(&topic, versions[1].clone()).await? else {
        return fail("the service has no second schema");
    };
    check!(stored.schema_data == with_place(Some("")).schema_data, "the second schema is another one");
    Ok(consumer.close().await?)
}

pub async fn refused(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let mut producer = produce_under(&client, &topic, schema(Type::Avro, record(), &[])).await?;
    send(&mut producer, avro_reading("one", 1)).await?;
    for other in [with_place(None), schema(Type::String, vec![], &[])] {
        check!(is_incompatible(produce_under(&client, &topic, other).await)?, "a producer was not refused");
    }
    let builder = subscribe(&client, &topic, SubType::Exclusive)
        .with_options(earliest().with_schema(schema(Type::String, vec![], &[])));
    let attempt: Outcome<crate::world::Consumer> = async { Ok(builder.build().await?) }.await;
    check!(is_incompatible(attempt)?, "a consumer was not refused");
    send(&mut producer, avro_reading("two", 2)).await?;
    let mut consumer = subscribe(&client, &topic, SubType::Exclusive)
        .with_options(earliest().with_schema(schema(Type::Avro, record(), &[])))
        .build()
        .await?;
    let messages = receive_many(&mut consumer, 2).await?;
    check!(messages[1].payload.data == avro_reading("two", 2), "another message came second");
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn first_consumer(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let avro = || schema(Type::Avro, record(), &[]);
    let mut consumer = subscribe(&client, &topic, SubType::Exclusive)
        .with_options(earliest().with_schema(avro()))
        .build()
        .await?;
    let other = produce_under(&client, &topic, schema(Type::String, vec![], &[])).await;
    check!(is_incompatible(other)?, "a producer was not refused");
    let mut producer = produce_under(&client, &topic, avro()).await?;
    send(&mut producer, avro_reading("one", 1)).await?;
    receive(&mut consumer).await?;
    consumer.close().await?;
    Ok(producer.close().await?)
}

pub async fn enforced(world: World) -> Outcome {
    let topic = world.topic();
    let client = world.connect_once().await?;
    let avro = || schema(Type::Avro, record(), &[]);
    produce_under(&client, &topic, avro()).await?.close().await?;
    produce(&client, &topic).await?.close().await?;
    ask("enforce", &[&topic]).await?;
    let end = Instant::now() + PATIENCE;
    while !is_incompatible(produce(&client, &topic).await)? {
        check!(Instant::now() < end, "a producer without a schema is still taken");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut producer = produce_under(&client, &topic, avro()).await?;
    send(&mut producer, avro_reading("one", 1)).await?;
    Ok(producer.close().await?)
}
