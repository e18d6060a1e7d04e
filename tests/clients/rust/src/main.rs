//! Program of the client matrix for the crate `pulsar`; `tests/clients/catalogue.py` says what it does.

mod acknowledging;
mod consuming;
mod disruptive;
mod harness;
mod logging;
mod publishing;
mod schemas;
mod subscribing;
mod world;

use std::pin::Pin;
use std::time::Duration;

use harness::{Ending, Outcome, lacks, say};
use pulsar::compression::{Compression, CompressionLz4, CompressionSnappy, CompressionZlib, CompressionZstd};
use pulsar::message::proto::CompressionType;
use world::World;

type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

const CALM: Duration = Duration::from_secs(30);
const DISRUPTIVE: Duration = Duration::from_secs(300);

/// Start a scenario; features that the crate does not have end it at once.
fn start(name: &str, world: World) -> Running {
    match name {
        "plain" => Box::pin(publishing::plain(world)),
        "compress-lz4" => Box::pin(publishing::compressed(
            world,
            Compression::Lz4(CompressionLz4::default()),
            CompressionType::Lz4,
        )),
        "compress-zlib" => Box::pin(publishing::compressed(
            world,
            Compression::Zlib(CompressionZlib::default()),
            CompressionType::Zlib,
        )),
        "compress-zstd" => Box::pin(publishing::compressed(
            world,
            Compression::Zstd(CompressionZstd::default()),
            CompressionType::Zstd,
        )),
        "compress-snappy" => Box::pin(publishing::compressed(
            world,
            Compression::Snappy(CompressionSnappy::default()),
            CompressionType::Snappy,
        )),
        "batches" => Box::pin(publishing::batches(world)),
        "keys" => Box::pin(publishing::keys(world)),
        "properties" => Box::pin(publishing::properties(world)),
        "event-time" => Box::pin(publishing::event_time(world)),
        "chunks" => lacking("no chunking in this client"),
        "too-large" => Box::pin(publishing::too_large(world)),
        "producer-name" => Box::pin(publishing::producer_name(world)),
        "access-exclusive" => Box::pin(publishing::access_exclusive(world)),
        "access-wait" => Box::pin(publishing::access_wait(world)),
        "access-fencing" => Box::pin(publishing::access_fencing(world)),
        "partitioned" => Box::pin(publishing::partitioned(world)),
        "partitions-grow" => Box::pin(publishing::partitions_grow(world)),
        "non-persistent" => Box::pin(publishing::non_persistent(world)),
        "deduplication" => Box::pin(publishing::deduplication(world)),
        "end-of-topic" => Box::pin(publishing::end_of_topic(world)),
        "encryption" => lacking("no end-to-end encryption in this client"),
        "interceptors" => lacking("no interceptors in this client"),
        "initial-position" => Box::pin(subscribing::initial_position(world)),
        "exclusive" => Box::pin(subscribing::exclusive(world)),
        "failover" => Box::pin(subscribing::failover(world)),
        "shared" => Box::pin(subscribing::shared(world)),
        "shared-turns" => Box::pin(subscribing::shared_turns(world)),
        "key-shared" => Box::pin(subscribing::key_shared(world)),
        "sticky-ranges" => lacking("no hash ranges for Key_Shared in this client"),
        "unsubscribe" => Box::pin(subscribing::unsubscribe(world)),
        "multi-topics" => Box::pin(consuming::multi_topics(world)),
        "pattern" => Box::pin(consuming::pattern(world)),
        "queue-size-zero" => lacking("a receiver queue of 0 becomes one of 1000 in this client"),
        "batch-receive" => lacking("no batch receive in this client"),
        "reader" => Box::pin(consuming::reader(world)),
        "last-message-id" => Box::pin(consuming::last_message_id(world)),
        "table-view" => lacking("no table view in this client"),
        "read-compacted" => Box::pin(consuming::read_compacted(world)),
        "seek-id" => Box::pin(consuming::seek_id(world)),
        "seek-time" => Box::pin(consuming::seek_time(world)),
        "ack-individual" => Box::pin(acknowledging::individual(world)),
        "ack-cumulative" => Box::pin(acknowledging::cumulative(world)),
        "ack-batch-index" => {
            lacking("no acknowledgement by batch index: ack sets of a delivery are not read")
        }
        "nack" => Box::pin(acknowledging::nack(world)),
        "dead-letter" => Box::pin(acknowledging::dead_letter(world)),
        "retry-letter" => lacking("no retry topic in this client"),
        "delayed" => Box::pin(acknowledging::delayed(world)),
        "schema-string" => Box::pin(schemas::string(world)),
        "schema-int64" => Box::pin(schemas::int64(world)),
        "schema-json" => Box::pin(schemas::json(world)),
        "schema-avro" => Box::pin(schemas::avro(world)),
        "schema-protobuf" => Box::pin(schemas::protobuf(world)),
        "schema-protobuf-native" => Box::pin(schemas::protobuf_native(world)),
        "schema-key-value" => Box::pin(schemas::key_value(world)),
        "schema-auto" => Box::pin(schemas::auto(world)),
        "schema-auto-produce" => lacking("no AUTO_PRODUCE schema in this client"),
        "schema-evolution" => Box::pin(schemas::evolution(world)),
        "schema-refused" => Box::pin(schemas::refused(world)),
        "schema-first-consumer" => Box::pin(schemas::first_consumer(world)),
        "schema-enforced" => Box::pin(schemas::enforced(world)),
        "moved" => Box::pin(disruptive::moved(world)),
        "killed" => Box::pin(disruptive::killed(world)),
        unknown => {
            let reason = format!("this program has no scenario {unknown}");
            Box::pin(async move { Err(Ending::Fail(reason)) })
        }
    }
}

fn lacking(reason: &'static str) -> Running {
    Box::pin(async move { lacks(reason) })
}

/// Run one scenario to its verdict, which a panic or too long a wait is, too.
async fn verdict(name: &str, world: World) -> Outcome {
    let bound = match name {
        "moved" | "killed" => DISRUPTIVE,
        _ => CALM,
    };
    let mut task = tokio::spawn(start(name, world));
    match tokio::time::timeout(bound, &mut task).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Ending::Fail(format!("the scenario panicked: {panic}"))),
        Err(_) => {
            task.abort();
            Err(Ending::Fail(format!("no verdict within {} s", bound.as_secs())))
        }
    }
}

async fn run(url: &str, prefix: &str, scenarios: &[String]) {
    for name in scenarios {
        say(&["begin", name]);
        match verdict(name, World::new(url, prefix, name)).await {
            Ok(()) => say(&["pass", name]),
            Err(Ending::Fail(reason)) => say(&["fail", name, &reason]),
            Err(Ending::Lacks(reason)) => say(&["lacks", name, &reason]),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, prefix, _keys, scenarios @ ..] = arguments.as_slice() else {
        eprintln!("usage: magnetar-client-rust SERVICE_URL PREFIX KEYS [SCENARIO ...]");
        std::process::exit(2);
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("magnetar-client-rust: no runtime: {error}");
            std::process::exit(2);
        }
    };
    logging::start();
    runtime.block_on(run(url, prefix, scenarios));
    // A thread that still waits for an answer must not keep the process.
    std::process::exit(0);
}
