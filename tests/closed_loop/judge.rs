//! The real kube-scheduler as a separate process (`tests/rig/judge`), queried line by line.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The process.
pub struct Judge {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The scheduler's decisions about the waiting pods.
#[derive(Debug, Deserialize)]
pub struct Bindings {
    /// Pods that the DaemonSet controller has made, as objects.
    pub made: Option<Vec<Value>>,
    /// The node of each pod that was placed.
    pub bound: BTreeMap<String, String>,
    /// The scheduler's message about each pod that was not placed.
    pub waiting: BTreeMap<String, String>,
}

/// The filters' verdicts on the waiting pods.
#[derive(Debug, Deserialize)]
pub struct Verdicts {
    /// By pod.
    pub pods: BTreeMap<String, Verdict>,
}

/// The filters' verdict on a pod.
#[derive(Debug, Deserialize)]
pub struct Verdict {
    /// The nodes that pass all filters.
    pub feasible: Vec<String>,
    /// For each node, the filters that refuse the pod. Each filter is run on its own.
    pub all: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Error { error: String },
    Said(T),
}

impl Judge {
    /// Starts the judge, and builds it first if necessary. Returns `None` if Go is not installed. With
    /// `CI=true`, this is an error.
    pub fn start() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let programs = match runtime.block_on(rig::Programs::only(&["judge"])).unwrap() {
            Ok(programs) => programs,
            Err(missing) => {
                eprintln!("skipped: {missing}");
                return None;
            }
        };
        let mut child = Command::new(programs.path("judge"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asks = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, asks, answers })
    }

    /// Lets the scheduler place the waiting pods among these objects. The seed determines the scheduler's
    /// random choices.
    pub fn bind(&mut self, objects: &[Value], seed: u64) -> Bindings {
        self.ask(&json!({"do": "bind", "seed": seed >> 1, "objects": objects}))
    }

    /// Asks the filters about the waiting pods among these objects.
    pub fn verdicts(&mut self, objects: &[Value]) -> Verdicts {
        self.ask(&json!({"do": "verdicts", "objects": objects}))
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &Value) -> T {
        writeln!(self.asks, "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        match serde_json::from_str(&line) {
            Ok(Answer::Said(said)) => said,
            Ok(Answer::Error { error }) => panic!("the judge says: {error}"),
            Err(error) => panic!("the judge's answer cannot be read ({error}): {line}"),
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // The process has nothing more to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
