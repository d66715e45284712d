//! The guest agent's protocol: one JSON object per line, resynchronized before each command.
//!
//! The socket serves one client at a time, and data that a previous client did not read is sent to the next
//! one. So each call begins with `guest-sync-delimited`, whose answer is preceded by a byte that JSON never
//! contains.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::timeout,
};

/// Sentinel of `guest-sync-delimited`.
const DELIMITER: u8 = 0xFF;
/// The maximum size of an answer, in bytes. The agent keeps 16 MiB of each output stream of a command, and
/// sends it as base64.
const ANSWER: u64 = 64 << 20;

/// Why the agent returned no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent does not answer.
    #[error("the guest agent does not answer")]
    Silent,
    /// The agent accepted the command, but did not answer in time.
    #[error("the guest agent did not answer in time")]
    Late,
    /// The agent refused the command.
    #[error("the guest agent rejected the command: {desc}")]
    Refused {
        /// Class of the error.
        class: String,
        /// Its text.
        desc: String,
    },
}

/// Sends a command and returns the `return` member of the agent's answer. `patience` is the time limit for
/// the synchronization, `limit` for the command.
pub async fn call(
    socket: &Path,
    patience: Duration,
    limit: Duration,
    command: &Value,
) -> Result<Value, AgentError> {
    let connected = timeout(patience, synchronized(socket)).await;
    let mut stream = connected.ok().flatten().ok_or(AgentError::Silent)?;
    let answered = timeout(limit, ask(&mut stream, command)).await;
    let answer = answered.ok().flatten().ok_or(AgentError::Late)?;
    match answer.get("error") {
        Some(error) => {
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            Err(AgentError::Refused { class: text("class"), desc: text("desc") })
        }
        None => Ok(answer.get("return").cloned().unwrap_or(Value::Null)),
    }
}

/// Sends a command that has no answer, such as `guest-shutdown`.
pub async fn tell(socket: &Path, patience: Duration, command: &Value) -> Result<(), AgentError> {
    let told = async {
        let mut stream = synchronized(socket).await?;
        stream.write_all(format!("{command}\n").as_bytes()).await.ok()?;
        stream.flush().await.ok()
    };
    timeout(patience, told).await.ok().flatten().ok_or(AgentError::Silent)
}

async fn synchronized(socket: &Path) -> Option<BufReader<UnixStream>> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await.ok()?);
    let id = fastrand::u32(1..);
    let sync = json!({ "execute": "guest-sync-delimited", "arguments": { "id": id } });
    let mut line = vec![DELIMITER];
    line.extend_from_slice(sync.to_string().as_bytes());
    line.push(b'\n');
    stream.write_all(&line).await.ok()?;
    loop {
        let mut stale = Vec::new();
        (&mut stream).take(ANSWER).read_until(DELIMITER, &mut stale).await.ok().filter(|read| *read > 0)?;
        let mut answer = String::new();
        (&mut stream).take(ANSWER).read_line(&mut answer).await.ok().filter(|read| *read > 0)?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        if answer["return"] == id {
            return Some(stream);
        }
    }
}

async fn ask(stream: &mut BufReader<UnixStream>, command: &Value) -> Option<Value> {
    stream.write_all(format!("{command}\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.take(ANSWER).read_line(&mut answer).await.ok().filter(|read| *read > 0)?;
    serde_json::from_str(&answer).ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(3);

    /// Starts an agent that first sends data that a previous client did not read, and then sends one answer
    /// for each command.
    fn agent(socket: &Path, answers: Vec<Value>) {
        let listener = UnixListener::bind(socket).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            stream.read_until(b'\n', &mut line).await.unwrap();
            assert_eq!(line.remove(0), DELIMITER);
            let sync: Value = serde_json::from_slice(&line).unwrap();
            let mut said = b"{\"return\": \"stale\"}\n\xFF{\"return\": 0}\n\xFF".to_vec();
            said.extend_from_slice(format!("{}\n", json!({ "return": sync["arguments"]["id"] })).as_bytes());
            stream.write_all(&said).await.unwrap();
            for answer in answers {
                stream.read_until(b'\n', &mut line).await.unwrap();
                stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            }
            std::future::pending::<()>().await;
        });
    }

    fn socket() -> std::path::PathBuf {
        std::env::temp_dir().join(format!("qga-{}-{}", std::process::id(), fastrand::u64(..)))
    }

    #[tokio::test]
    async fn an_answer_that_another_client_left_is_passed_over() {
        let path = socket();
        agent(&path, vec![json!({ "return": { "pid": 7 } })]);
        let answer = call(&path, SOON, SOON, &json!({ "execute": "guest-exec" })).await;
        assert_eq!(answer, Ok(json!({ "pid": 7 })));
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_text() {
        let path = socket();
        agent(&path, vec![json!({ "error": { "class": "GenericError", "desc": "no" } })]);
        let refused = call(&path, SOON, SOON, &json!({ "execute": "guest-exec" })).await;
        assert_eq!(refused, Err(AgentError::Refused { class: "GenericError".into(), desc: "no".into() }));
    }

    // The clock is not paused, because a paused clock does not wait for sockets.
    #[tokio::test]
    async fn silence_and_lateness_are_told_apart() {
        let path = socket();
        assert_eq!(call(&path, SOON, SOON, &Value::Null).await, Err(AgentError::Silent));
        agent(&path, Vec::new());
        let late = call(&path, SOON, Duration::from_millis(50), &Value::Null).await;
        assert_eq!(late, Err(AgentError::Late));
    }
}
