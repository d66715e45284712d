//! Sends requests through `pvesh`, which gives root access to the API on a Proxmox VE host without a token.
//!
//! This transport is only used for the setup. `pvesh` takes parameters as arguments, so they must not contain
//! secrets. It runs task workers in the foreground, and exits successfully even if a task fails. If a request
//! is for another host, `pvesh` forwards it through SSH.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::process::Command;
use tower::{BoxError, service_fn};

use super::transport::{NotSent, Transport};

/// The prefix of an API path in a URL.
const BASE: &str = "/api2/json";
/// The maximum length of the `pvesh` error output that is reported, in characters.
const LONGEST: usize = 500;

/// A transport that runs this program for each request, and kills it after `limit`.
pub fn over_pvesh(program: PathBuf, limit: Duration) -> Transport {
    Transport::new(service_fn(move |request| run(program.clone(), limit, request)))
}

async fn run(
    program: PathBuf,
    limit: Duration,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, BoxError> {
    let arguments = arguments(&request)?;
    let child = Command::new(&program)
        .args(&arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| not_sent(&program, error))?;
    let output = tokio::time::timeout(limit, child.wait_with_output())
        .await
        .map_err(|_| format!("`{}` did not end within {} s", program.display(), limit.as_secs()))??;
    let (status, body) = if output.status.success() {
        // Calls without data print nothing.
        let data = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        (StatusCode::OK, json!({ "data": data }))
    } else {
        refused(&String::from_utf8_lossy(&output.stderr))
    };
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    Ok(response)
}

fn not_sent(program: &Path, error: std::io::Error) -> BoxError {
    NotSent(format!("cannot run `{}`: {error}", program.display()).into()).into()
}

/// The command line for a request.
fn arguments(request: &Request<Bytes>) -> Result<Vec<String>, BoxError> {
    let verb = match *request.method() {
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "set",
        Method::DELETE => "delete",
        _ => return Err(format!("pvesh does not support {}", request.method()).into()),
    };
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned);
    let uri = request.uri();
    let path = decoded(uri.path().strip_prefix(BASE).unwrap_or(uri.path()))?;
    let mut arguments = vec![verb.to_owned(), path, "--output-format".to_owned(), "json".to_owned()];
    let form = std::str::from_utf8(request.body())?;
    for pair in uri.query().unwrap_or_default().split('&').chain(form.split('&')) {
        if let Some((name, value)) = pair.split_once('=') {
            arguments.push(format!("--{name}"));
            arguments.push(decoded(value)?);
        }
    }
    Ok(arguments)
}

/// Builds the answer for a failed call from the error output of `pvesh`. The output begins with an HTTP
/// status if the API returned one.
fn refused(said: &str) -> (StatusCode, Value) {
    let text: String = said.trim().chars().take(LONGEST).collect();
    let status = text.get(..3).and_then(|digits| digits.parse::<u16>().ok());
    let status = status.filter(|status| (400..600).contains(status));
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, json!({ "data": null, "message": text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(method: Method, uri: &str, body: &'static str) -> String {
        let request = Request::builder().method(method).uri(uri).body(Bytes::from(body)).unwrap();
        arguments(&request).unwrap().join("|")
    }

    #[test]
    fn a_request_is_written_as_a_command_line() {
        let at = |path: &str| format!("https://127.0.0.1:8006/api2/json{path}");
        assert_eq!(
            line(Method::GET, &at("/cluster/resources?type=vm"), ""),
            "get|/cluster/resources|--output-format|json|--type|vm"
        );
        assert_eq!(
            line(Method::POST, &at("/access/users/a%40pve/token/agent"), "privsep=1&comment=two%20words"),
            "create|/access/users/a@pve/token/agent|--output-format|json|--privsep|1|--comment|two words"
        );
        assert_eq!(
            line(Method::PUT, &at("/access/acl"), "path=%2F&roles=A"),
            "set|/access/acl|--output-format|json|--path|/|--roles|A"
        );
    }

    #[test]
    fn what_it_complains_of_is_an_answer_with_a_status() {
        for (said, status) in [
            ("400 Parameter verification failed.\nroleid: invalid\n", 400),
            ("403 Permission check failed\n", 403),
            ("role 'A' already exists\n", 500),
            ("", 500),
            ("20 of 30 hosts", 500),
        ] {
            let (found, body) = refused(said);
            assert_eq!(found.as_u16(), status, "{said}");
            assert_eq!(body["message"], said.trim());
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_was_not_asked() {
        let request = Request::get("https://h/api2/json/version").body(Bytes::new()).unwrap();
        let asked = run("/nowhere/pvesh".into(), Duration::from_secs(5), request).await;
        assert!(asked.is_err_and(|error| error.is::<NotSent>()));
    }
}
