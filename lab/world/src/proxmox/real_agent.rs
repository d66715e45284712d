//! Guest agent calls to a real guest. The agent's results are returned in the same form as those of a
//! simulated guest.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    ApiCall,
    agent::{COMMAND_LIMIT, WIDE, latin1},
    answer::{Answer, Refusal},
    power::AGENT_PING,
};
use crate::qemu::{AgentError, Running};

/// Commands without parameters whose answers are passed on as they are.
const SIMPLE: &[&str] = &[
    "get-fsinfo",
    "get-host-name",
    "get-memory-block-info",
    "get-memory-blocks",
    "get-osinfo",
    "get-time",
    "get-timezone",
    "get-users",
    "get-vcpus",
    "info",
    "network-get-interfaces",
    "ping",
];

pub(super) async fn answer(running: &Running, what: &str, call: &ApiCall) -> Result<Answer, Refusal> {
    let agent = Agent { running, vmid: call.vmid() };
    match what {
        "exec" => exec(&agent, call).await,
        "exec-status" => exec_status(&agent, call).await,
        "file-read" => file_read(&agent, call).await,
        "file-write" => file_write(&agent, call).await,
        simple if SIMPLE.contains(&simple) => match agent.ask(simple, &json!({})).await {
            Ok(result) => Ok(json!({ "result": result }).into()),
            // The real server does not check whether the agent returned an error. It passes an error on like
            // any other result.
            Err(AgentError::Refused { class, desc }) => {
                Ok(json!({ "result": { "error": { "class": class, "desc": desc } } }).into())
            }
            Err(error) => Err(agent.refusal(simple, error)),
        },
        other => Err(Refusal::NotImplemented(format!("Method 'agent/{other}' not implemented"))),
    }
}

struct Agent<'r> {
    running: &'r Running,
    vmid: u32,
}

impl Agent<'_> {
    async fn ask(&self, command: &str, arguments: &Value) -> Result<Value, AgentError> {
        let command = json!({ "execute": format!("guest-{command}"), "arguments": arguments });
        self.running.agent(AGENT_PING, COMMAND_LIMIT, &command).await
    }

    async fn must(&self, command: &str, arguments: &Value) -> Result<Value, Refusal> {
        self.ask(command, arguments).await.map_err(|error| self.refusal(command, error))
    }

    fn refusal(&self, command: &str, error: AgentError) -> Refusal {
        match error {
            AgentError::Silent => Refusal::failed("QEMU guest agent is not running"),
            AgentError::Late => Refusal::failed(format!(
                "VM {} qga command 'guest-{command}' failed - got timeout",
                self.vmid
            )),
            // If an error text contains a character that does not fit into the status line, the real server
            // breaks the connection.
            AgentError::Refused { desc, .. } if is_wide(&desc) => Refusal::Bare(596, "Broken pipe".into()),
            AgentError::Refused { desc, .. } => Refusal::failed(format!("Agent error: {desc}")),
        }
    }
}

fn is_wide(text: &str) -> bool {
    text.chars().any(|c| u32::from(c) > 255)
}

/// Returns the input as bytes, one per character.
fn bytes(text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    bytes.ok_or_else(|| Refusal::failed(WIDE))
}

async fn exec(agent: &Agent<'_>, call: &ApiCall) -> Result<Answer, Refusal> {
    let command = call.params.list("command");
    let Some((path, words)) = command.split_first() else {
        return Err(Refusal::parameter("command", "property is missing and it is not optional"));
    };
    if command.iter().any(|word| is_wide(word)) {
        tokio::time::sleep(COMMAND_LIMIT).await;
        return Err(agent.refusal("exec", AgentError::Late));
    }
    let mut arguments = json!({ "path": path, "arg": words, "capture-output": true });
    if let Some(input) = call.params.text("input-data") {
        arguments["input-data"] = BASE64_STANDARD.encode(bytes(&input)?).into();
    }
    match agent.ask("exec", &arguments).await {
        Ok(started) => Ok(json!({ "pid": started["pid"] }).into()),
        Err(error) => {
            let refusal = agent.refusal("exec", error);
            if matches!(refusal, Refusal::Bare(..)) {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            Err(refusal)
        }
    }
}

async fn exec_status(agent: &Agent<'_>, call: &ApiCall) -> Result<Answer, Refusal> {
    let pid = call.params.number("pid").unwrap_or(0);
    let status = agent.must("exec-status", &json!({ "pid": pid })).await?;
    let mut answer = json!({ "exited": i32::from(status["exited"] == true) });
    for member in ["exitcode", "signal"] {
        if let Some(value) = status.get(member) {
            answer[member] = value.clone();
        }
    }
    for stream in ["out", "err"] {
        if let Some(data) = status.get(format!("{stream}-data")).and_then(Value::as_str) {
            let decoded = BASE64_STANDARD.decode(data).unwrap_or_default();
            answer[format!("{stream}-data")] = latin1(&decoded).into();
            let cut = status.get(format!("{stream}-truncated")) == Some(&true.into());
            answer[format!("{stream}-truncated")] = i32::from(cut).into();
        }
    }
    Ok(answer.into())
}

/// The number of bytes that the real server reads in one step.
const CHUNK: u64 = 1 << 20;
/// The maximum number of bytes that the real server reads from a file.
const FILE: usize = 16 << 20;

async fn file_read(agent: &Agent<'_>, call: &ApiCall) -> Result<Answer, Refusal> {
    let path = call.params.text("file").unwrap_or_default();
    let handle = agent.must("file-open", &json!({ "path": path, "mode": "r" })).await?;
    let mut content = Vec::new();
    while content.len() < FILE {
        let read = agent.must("file-read", &json!({ "handle": handle, "count": CHUNK })).await?;
        let data = read["buf-b64"].as_str().unwrap_or_default();
        content.extend(BASE64_STANDARD.decode(data).unwrap_or_default());
        if read["eof"] == true {
            break;
        }
    }
    agent.must("file-close", &json!({ "handle": handle })).await?;
    Ok(json!({ "content": latin1(&content), "bytes-read": content.len() }).into())
}

async fn file_write(agent: &Agent<'_>, call: &ApiCall) -> Result<Answer, Refusal> {
    let path = call.params.text("file").unwrap_or_default();
    let content = call.params.text("content").unwrap_or_default();
    let encodes = call.params.text("encode").is_none() || call.params.flag("encode");
    let data = if encodes { BASE64_STANDARD.encode(bytes(&content)?) } else { content };
    let handle = agent.must("file-open", &json!({ "path": path, "mode": "wb" })).await?;
    agent.must("file-write", &json!({ "handle": handle, "buf-b64": data })).await?;
    agent.must("file-close", &json!({ "handle": handle })).await?;
    Ok(Value::Null.into())
}
