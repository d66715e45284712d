//! An API server that answers from a script and remembers the requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kubernetes::Cluster;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::{BoxError, service_fn};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub body: Value,
}

/// The script's reply to a request.
pub enum Reply {
    Json(u16, Value),
    /// A JSON response after this delay.
    Late(Duration, Value),
    /// A stream of JSON lines, which ends when the sender is dropped.
    Stream(mpsc::UnboundedReceiver<Value>),
    /// No connection.
    Refused,
    /// No answer, ever.
    Silence,
}

/// All requests that have arrived.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Asked>>>);

impl Log {
    pub fn all(&self) -> Vec<Asked> {
        self.0.lock().unwrap().clone()
    }

    pub fn last(&self) -> Asked {
        self.all().pop().expect("no request has arrived")
    }
}

/// A [`Cluster`] whose API server answers from the script, and the log of its requests. Must be called inside
/// a tokio runtime.
pub fn cluster(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> (Cluster, Log) {
    let script = Arc::new(script);
    let log = Log::default();
    let seen = log.clone();
    let service = service_fn(move |request: Request<Bytes>| {
        let (script, seen) = (script.clone(), seen.clone());
        async move {
            let asked = Asked {
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(request.body()).unwrap_or(Value::Null),
            };
            seen.0.lock().unwrap().push(asked.clone());
            answer(script(&asked)).await
        }
    });
    (Cluster::with_service(service, "pve-autoscaler"), log)
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn whole(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

async fn answer(reply: Reply) -> Result<Response<Body>, BoxError> {
    let (status, body) = match reply {
        Reply::Json(status, value) => (status, whole(&value)),
        Reply::Late(after, value) => {
            tokio::time::sleep(after).await;
            (200, whole(&value))
        }
        Reply::Stream(lines) => {
            let lines = stream::unfold(lines, |mut lines| async move {
                let line = lines.recv().await?;
                Some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("{line}\n")))), lines))
            });
            (200, StreamBody::new(lines).boxed_unsync())
        }
        Reply::Refused => return Err("connection refused".into()),
        Reply::Silence => std::future::pending().await,
    };
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body)?)
}

/// A refusal, as the API server words it.
pub fn refusal(code: u16, reason: &str, message: &str) -> Reply {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Reply::Json(code, status)
}
