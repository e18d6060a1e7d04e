//! Scenarios of `tests/clients/security_catalogue.py` with the crate `pulsar`; called as it says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use pulsar::authentication::Authentication as Provider;
use pulsar::authentication::basic::BasicAuthentication;
use pulsar::consumer::InitialPosition;
use pulsar::error::AuthenticationError;
use pulsar::{
    Authentication, ConnectionRetryOptions, ConsumerOptions, OperationRetryOptions, ProducerOptions, Pulsar,
    SubType, TokioExecutor,
};

const USER: &str = "bob";
const BOUND: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(10);
const MESSAGES: usize = 10;
const RENEWED_MESSAGES: usize = 100;
const RENEWED_PAUSE: Duration = Duration::from_millis(80);
/// The crate logs why the service refused a connection; what it could try again has another error.
const UNAUTHENTICATED: &str = "fatal error when connecting";

enum Ending {
    Fail(String),
    Lacks(&'static str),
}

type Outcome = Result<(), Ending>;

impl<E: std::error::Error> From<E> for Ending {
    fn from(error: E) -> Self {
        Ending::Fail(error.to_string())
    }
}

fn fail(reason: impl Into<String>) -> Outcome {
    Err(Ending::Fail(reason.into()))
}

/// Reads its token for each connection and each challenge.
struct Supplier(PathBuf);

#[async_trait]
impl Provider for Supplier {
    fn auth_method_name(&self) -> String {
        "token".to_owned()
    }

    async fn initialize(&mut self) -> Result<(), AuthenticationError> {
        Ok(())
    }

    async fn auth_data(&mut self) -> Result<Vec<u8>, AuthenticationError> {
        std::fs::read(&self.0).map_err(|error| AuthenticationError::Custom(error.to_string()))
    }
}

/// Addresses and files of the service, for one scenario.
struct Scene {
    directory: PathBuf,
    tls: String,
    unnamed: String,
    plain: String,
    topic: String,
}

impl Scene {
    fn new(arguments: &[String], name: &str) -> Self {
        Scene {
            directory: Path::new(&arguments[0]).to_owned(),
            tls: format!("pulsar+ssl://localhost:{}", arguments[1]),
            unnamed: format!("pulsar+ssl://127.0.0.2:{}", arguments[1]),
            plain: format!("pulsar://localhost:{}", arguments[2]),
            topic: format!("persistent://public/default/{}-{name}", arguments[4]),
        }
    }

    fn read(&self, name: &str) -> Result<String, Ending> {
        Ok(std::fs::read_to_string(self.directory.join(name))?)
    }

    fn token(&self, name: &str) -> Result<Box<dyn Provider>, Ending> {
        let data = self.read(&format!("{name}.token"))?.into_bytes();
        Ok(Box::new(Authentication { name: "token".to_owned(), data }))
    }

    async fn connect(
        &self,
        url: &str,
        credential: Option<Box<dyn Provider>>,
        names: bool,
    ) -> Result<Pulsar<TokioExecutor>, Ending> {
        let connections = ConnectionRetryOptions { max_retries: 2, ..ConnectionRetryOptions::default() };
        let operations = OperationRetryOptions {
            operation_timeout: PATIENCE,
            retry_delay: Duration::from_millis(200),
            max_retries: Some(0),
        };
        let mut builder = Pulsar::builder(url, TokioExecutor)
            .with_certificate_chain(self.read("ca.pem")?.into_bytes())
            .with_tls_hostname_verification_enabled(names)
            .with_connection_retry_options(connections)
            .with_operation_retry_options(operations);
        if let Some(credential) = credential {
            builder = builder.with_auth_provider(credential);
        }
        Ok(builder.build().await?)
    }

    /// Send messages and receive each before the next.
    async fn exchange(&self, client: Pulsar<TokioExecutor>, count: usize, pause: Duration) -> Outcome {
        let mut consumer: pulsar::Consumer<Vec<u8>, _> = client
            .consumer()
            .with_topic(&self.topic)
            .with_subscription("sub")
            .with_subscription_type(SubType::Exclusive)
            .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
            .build()
            .await?;
        let options = ProducerOptions { block_queue_if_full: true, ..ProducerOptions::default() };
        let mut producer = client.producer().with_topic(&self.topic).with_options(options).build().await?;
        for number in 0..count {
            producer.send_non_blocking(number.to_string()).await?.await?;
            loop {
                let message = match tokio::time::timeout(PATIENCE, consumer.next()).await? {
                    Some(message) => message?,
                    None => return fail("the consumer has ended"),
                };
                consumer.ack(&message).await?;
                let text = String::from_utf8_lossy(&message.payload.data).into_owned();
                match text.parse::<usize>() {
                    Ok(found) if found == number => break,
                    // The crate connects again when its answer to a challenge is late; then the last one repeats.
                    Ok(found) if found + 1 == number => {}
                    _ => return fail(format!("the next message is {text}, expected {number}")),
                }
            }
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Expect an error with this text before there is a producer.
    async fn refused(&self, url: &str, credential: Option<Box<dyn Provider>>, text: &str) -> Outcome {
        let opened = async {
            let client = self.connect(url, credential, true).await?;
            client.producer().with_topic(&self.topic).build().await?;
            Ok::<(), Ending>(())
        };
        match opened.await {
            Ok(()) => fail("a producer was opened"),
            Err(Ending::Fail(reason)) if !reason.contains(text) => {
                fail(format!("refused without {text}: {reason}"))
            }
            Err(_) => Ok(()),
        }
    }

    async fn run(&self, name: &str) -> Outcome {
        let few = |client| self.exchange(client, MESSAGES, Duration::ZERO);
        match name {
            "token-tls" | "name-right" => {
                let names = name == "name-right";
                few(self.connect(&self.tls, Some(self.token("alice")?), names).await?).await
            }
            "token-plain" => few(self.connect(&self.plain, Some(self.token("alice")?), false).await?).await,
            "basic-tls" => {
                let basic = BasicAuthentication::new(USER, &self.read("bob.password")?);
                few(self.connect(&self.tls, Some(basic), false).await?).await
            }
            "certificate" => Err(Ending::Lacks("no client certificates in this client")),
            "name-wrong" => {
                self.refused(&self.unnamed, Some(self.token("alice")?), "").await?;
                few(self.connect(&self.unnamed, Some(self.token("alice")?), false).await?).await
            }
            "token-forged" => self.refused(&self.tls, Some(self.token("forged")?), UNAUTHENTICATED).await,
            "no-credentials" => self.refused(&self.tls, None, UNAUTHENTICATED).await,
            "no-right" => self.refused(&self.tls, Some(self.token("mallory")?), "AuthorizationError").await,
            "token-renewed" => {
                let supplier = Supplier(self.directory.join("supplied.token"));
                let client = self.connect(&self.tls, Some(Box::new(supplier)), false).await?;
                self.exchange(client, RENEWED_MESSAGES, RENEWED_PAUSE).await
            }
            "oauth2" => Err(Ending::Lacks("its client of issuers trusts public authorities alone")),
            unknown => fail(format!("this program has no scenario {unknown}")),
        }
    }
}

fn say(words: &[&str]) {
    let line: Vec<String> = words.iter().map(|word| word.replace(['\t', '\r', '\n'], " ")).collect();
    println!("{}", line.join("\t"));
}

async fn run(arguments: &[String]) {
    for name in &arguments[5..] {
        say(&["begin", name]);
        let scene = Scene::new(arguments, name);
        match tokio::time::timeout(BOUND, scene.run(name)).await {
            Ok(Ok(())) => say(&["pass", name]),
            Ok(Err(Ending::Fail(reason))) => say(&["fail", name, &reason]),
            Ok(Err(Ending::Lacks(reason))) => say(&["lacks", name, reason]),
            Err(_) => say(&["fail", name, &format!("no verdict within {} s", BOUND.as_secs())]),
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() < 5 {
        eprintln!("usage: security DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]");
        std::process::exit(2);
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => {
            eprintln!("security: no runtime: {error}");
            std::process::exit(2);
        }
    }
    std::process::exit(0);
}
