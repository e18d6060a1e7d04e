//! What a program says on standard output and asks of the service, and how scenarios end.

use std::io::{BufRead, Write};
use std::sync::Mutex;

/// How a scenario ends when it does not pass.
#[derive(Debug)]
pub enum Ending {
    Fail(String),
    Lacks(String),
}

pub type Outcome<T = ()> = Result<T, Ending>;

impl<E: std::error::Error> From<E> for Ending {
    fn from(error: E) -> Self {
        Ending::Fail(error.to_string())
    }
}

pub fn lacks<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Ending::Lacks(reason.into()))
}

pub fn fail<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Ending::Fail(reason.into()))
}

/// End the scenario unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::harness::Ending::Fail(format!($($text)+)));
        }
    };
}

/// Write one line of the protocol.
pub fn say(words: &[&str]) {
    let line: Vec<String> = words.iter().map(|word| word.replace(['\t', '\r', '\n'], " ")).collect();
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "{}", line.join("\t")).and_then(|()| output.flush());
    if let Err(error) = written {
        eprintln!("magnetar-client-rust: standard output is gone: {error}");
        std::process::exit(1);
    }
}

/// One question is out at a time, also when the scenario that asked it has timed out.
static ASKING: Mutex<()> = Mutex::new(());

/// Ask something of the service; return the answer's value, which is empty for most verbs.
pub async fn ask(verb: &str, arguments: &[&str]) -> Outcome<String> {
    let mut words = vec!["ask".to_owned(), verb.to_owned()];
    words.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let answer = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        let _one = ASKING.lock();
        say(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok(line)
    })
    .await??;
    let answer = answer.trim_end_matches('\n');
    match answer.split_once('\t').unwrap_or((answer, "")) {
        ("done", value) => Ok(value.to_owned()),
        (_, reason) => fail(format!("asked to {verb}, the answer was: {answer} {reason}")),
    }
}
