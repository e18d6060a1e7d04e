//! The crate's errors on standard error.

struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Error
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            eprintln!("{} {}: {}", record.level(), record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Write what the crate logs as an error from here on.
pub fn start() {
    if log::set_logger(&StandardError).is_ok() {
        log::set_max_level(log::LevelFilter::Error);
    }
}
