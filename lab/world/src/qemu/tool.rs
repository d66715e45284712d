//! Runs external programs and waits for them to end.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::HardwareError;

/// How long a program may take. The slowest one copies a disk.
const LIMIT: Duration = Duration::from_mins(2);

/// Runs a program and returns its standard output.
pub async fn run(program: &str, arguments: &[&str]) -> Result<String, HardwareError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let missing = |source| HardwareError::Missing { program: program.to_owned(), source };
    let failed = |said: String| HardwareError::Failed { program: program.to_owned(), said };
    let Ok(ended) = tokio::time::timeout(LIMIT, command.output()).await else {
        return Err(failed(format!("took longer than {LIMIT:?}")));
    };
    let output = ended.map_err(missing)?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Converts an I/O error into an error that names the attempted operation and the file.
pub fn file(what: String) -> impl FnOnce(std::io::Error) -> HardwareError {
    move |source| HardwareError::File { what, source }
}
