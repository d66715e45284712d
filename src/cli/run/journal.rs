//! Sends events to systemd's journal through its native protocol. Each event is sent with its fields. Its
//! message repeats the fields, because `journalctl` shows only the message by default.
//!
//! The protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::fmt::{Debug, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The path of the journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";
/// The identifier of this program in the journal.
const IDENTIFIER: &str = "pve-autoscaler";
/// The maximum length of a value, in bytes. Longer values are truncated. A datagram can hold about 200 KiB.
const LONGEST: usize = 32 * 1024;

/// Sends events to the journal.
#[derive(Debug)]
pub(super) struct Journal(UnixDatagram);

impl Journal {
    /// The journal of this system.
    pub fn connect() -> std::io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    fn at(socket: &Path) -> std::io::Result<Self> {
        let datagram = UnixDatagram::unbound()?;
        datagram.connect(socket)?;
        // A journal that hangs must not block the thread that logs.
        datagram.set_nonblocking(true)?;
        Ok(Self(datagram))
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut told = Told::default();
        event.record(&mut told);
        // A full or missing journal must not end the daemon.
        let _ = self.0.send(&told.datagram(*event.metadata().level(), event.metadata().target()));
    }
}

/// The message and fields of an event.
#[derive(Default)]
struct Told {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field.name(), format!("{value:?}"));
    }
}

impl Told {
    fn take(&mut self, name: &'static str, value: String) {
        match name {
            "message" => self.message = value,
            _ => self.fields.push((name, value)),
        }
    }

    fn datagram(&self, level: Level, target: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, "MESSAGE", &self.line());
        put(&mut out, "PRIORITY", priority(level));
        put(&mut out, "SYSLOG_IDENTIFIER", IDENTIFIER);
        put(&mut out, "TARGET", target);
        for (name, value) in &self.fields {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            put(&mut out, &format!("F_{}", name.chars().map(plain).collect::<String>()), value);
        }
        out
    }

    /// The message with its fields: `machine phase changed: machine=workers-k3x9 to=Booting`.
    fn line(&self) -> String {
        let mut line = self.message.clone();
        for (number, (name, value)) in self.fields.iter().filter(|(_, value)| !value.is_empty()).enumerate() {
            let before = if number > 0 || line.is_empty() { " " } else { ": " };
            let quoted = value.contains(char::is_whitespace) && !value.starts_with(['"', '[', '{']);
            let _ = if quoted {
                write!(line, "{before}{name}={value:?}")
            } else {
                write!(line, "{before}{name}={value}")
            };
        }
        line
    }
}

/// Priorities of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

/// Writes one field; a value with several lines is preceded by its length.
fn put(out: &mut Vec<u8>, name: &str, value: &str) {
    let mut end = value.len().min(LONGEST);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    let value = &value.as_bytes()[..end];
    out.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Returns the datagram that the journal receives when `log` logs an event.
    fn sent(log: impl FnOnce()) -> String {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        journal.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let layer = Journal::at(&path).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let mut buffer = vec![0; 1 << 20];
        let length = journal.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn the_message_shows_the_fields_and_each_has_its_own_as_well() {
        let text = sent(|| {
            let (name, from) = ("workers-k3x9", Some(7));
            tracing::warn!(machine = %name, ?from, note = "waiting for the agent", empty = "", "machine phase changed");
        });
        for line in [
            "MESSAGE=machine phase changed: machine=workers-k3x9 from=Some(7) note=\"waiting for the agent\"",
            "PRIORITY=4",
            "SYSLOG_IDENTIFIER=pve-autoscaler",
            "F_MACHINE=workers-k3x9",
            "F_NOTE=waiting for the agent",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    #[test]
    fn a_message_of_several_lines_is_one_message_and_a_long_one_is_cut() {
        let text = sent(|| tracing::info!("first\nsecond"));
        assert!(text.starts_with("MESSAGE\n\x0c\0\0\0\0\0\0\0first\nsecond\nPRIORITY=6\n"), "{text:?}");
        let text = sent(|| tracing::info!("{}", "ä".repeat(LONGEST)));
        assert!(text.contains(&format!("{}\nPRIORITY=6", "ä".repeat(LONGEST / 2))), "cut between characters");
    }
}
