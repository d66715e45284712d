//! A client for one system of a management controller.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, IF_MATCH};
use http::{HeaderValue, Method, Request, Response};
use runtime::boxed;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

use super::error::{Error, Kind};
use crate::{NotSent, Transport};
use runtime::error_chain::{chain, root};
use runtime::fence::{Fence, Fenced};

/// The standard path of a controller's list of systems.
const SYSTEMS: &str = "/redfish/v1/Systems";
/// The action that switches a system on and off.
const RESET: &str = "#ComputerSystem.Reset";
/// The maximum length of an error message from the controller, in characters. Longer messages are truncated.
const LONGEST: usize = 300;

/// The settings for reaching a system.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The controller's base URL, e.g. `https://10.0.0.5`.
    pub endpoint: String,
    /// The system's path, e.g. `/redfish/v1/Systems/1`; `None` for the controller's only system.
    pub system: Option<String>,
    /// The user name.
    pub user: String,
    /// The time limit for an entire call.
    pub timeout: Duration,
}

/// A system's power state (`PowerState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// It is running.
    On,
    /// It is off.
    Off,
    /// The system is being switched on.
    PoweringOn,
    /// The system is being switched off.
    PoweringOff,
    /// The system is paused, or reports an unknown state.
    Other,
}

/// The power state changes that can be requested of a system (`ResetType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Switch on.
    On,
    /// Shut down, as if the power button were pressed.
    GracefulShutdown,
    /// Cut the power.
    ForceOff,
}

impl Reset {
    /// The Redfish name.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "On",
            Self::GracefulShutdown => "GracefulShutdown",
            Self::ForceOff => "ForceOff",
        }
    }

    fn is_there(self, state: PowerState) -> bool {
        match self {
            Self::On => matches!(state, PowerState::On | PowerState::PoweringOn),
            Self::GracefulShutdown => matches!(state, PowerState::Off | PowerState::PoweringOff),
            Self::ForceOff => state == PowerState::Off,
        }
    }
}

/// A client for one system.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    settings: Settings,
    authorization: HeaderValue,
    fence: Fence,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The state of a system, read in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemState {
    /// Its power.
    pub power: PowerState,
    /// The system's SMBIOS UUID in lower case, if it reports one that can identify it.
    pub uuid: Option<String>,
    /// The reset types that the system accepts, by their Redfish names; empty if the system does not report
    /// them.
    pub resets: Vec<String>,
}

/// A system, as the controller last returned it.
struct System {
    path: String,
    state: PowerState,
    target: String,
    uuid: Option<String>,
    /// The reset types that the system accepts, by their Redfish names; empty if the system does not report
    /// them.
    allowed: Vec<String>,
    tag: Option<HeaderValue>,
}

impl Client {
    /// A client that uses this transport.
    ///
    /// # Errors
    /// Returns an error if the user name and the password cannot be put into a header.
    pub fn new(
        transport: Transport,
        settings: Settings,
        password: &SecretString,
    ) -> Result<Self, http::Error> {
        let pair = format!("{}:{}", settings.user, password.expose_secret());
        let mut authorization = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
        authorization.set_sensitive(true);
        Ok(Self { transport, settings, authorization, fence: Fence::open() })
    }

    /// A copy of this client whose resets must pass the fence.
    pub fn fenced(&self, fence: &Fence) -> Self {
        Self { fence: fence.clone(), ..self.clone() }
    }

    /// Reads the system's current power state.
    ///
    /// # Errors
    /// Returns an error if the controller does not answer, or its answer does not follow Redfish.
    #[boxed]
    pub async fn power(&self) -> Result<PowerState, Error> {
        self.system().await.map(|system| system.state)
    }

    /// Reads the system's current power state, its UUID, and the values of `ResetType` that it accepts.
    ///
    /// # Errors
    /// Returns an error if the controller does not answer, or its answer does not follow Redfish.
    #[boxed]
    pub async fn look(&self) -> Result<SystemState, Error> {
        let system = self.system().await?;
        Ok(SystemState { power: system.state, uuid: system.uuid, resets: system.allowed })
    }

    /// Requests a power state change, and returns whether it sent the request. It sends nothing if the system
    /// is already in the wanted state or is changing to it. `ForceOff` is an exception: it is also sent while
    /// the system is being switched off.
    ///
    /// # Errors
    /// Returns an error if the controller does not answer, or refuses. With [`Kind::OutcomeUnknown`], the
    /// request may have arrived.
    #[boxed]
    pub async fn reset(&self, reset: Reset) -> Result<bool, Error> {
        let system = self.system().await?;
        if reset.is_there(system.state) {
            return Ok(false);
        }
        let call = format!("POST {}", system.target);
        if !system.allowed.is_empty() && !system.allowed.iter().any(|one| one == reset.name()) {
            let text = format!("the system supports {}, but not {}", system.allowed.join(", "), reset.name());
            return Err(Error::new(Kind::Unsupported, &call, text));
        }
        let mut answer = self.ask_for(&system, reset, None).await?;
        // With these statuses, the controller did not carry out the request: it requires the current `ETag`.
        if matches!(answer.status().as_u16(), 412 | 428) {
            let again = self.system_at(&system.path).await?;
            if reset.is_there(again.state) {
                return Ok(false);
            }
            answer = self.ask_for(&again, reset, again.tag.clone()).await?;
        }
        refusal(&call, &answer).map_or(Ok(true), Err)
    }

    async fn ask_for(
        &self,
        system: &System,
        reset: Reset,
        tag: Option<HeaderValue>,
    ) -> Result<Response<Bytes>, Error> {
        let body = json!({ "ResetType": reset.name() }).to_string();
        self.send(&Method::POST, &system.target, Bytes::from(body), tag).await
    }

    async fn system(&self) -> Result<System, Error> {
        if let Some(path) = &self.settings.system {
            return self.system_at(path).await;
        }
        let path = self.only_system().await?;
        self.system_at(&path).await
    }

    /// Returns the path of the controller's only system.
    async fn only_system(&self) -> Result<String, Error> {
        let call = format!("GET {SYSTEMS}");
        let (list, _) = self.get(SYSTEMS).await?;
        let members = list["Members"].as_array().into_iter().flatten();
        let paths: Vec<&str> = members.filter_map(|member| member["@odata.id"].as_str()).collect();
        match paths.as_slice() {
            [path] => Ok((*path).to_owned()),
            [] => Err(Error::new(Kind::NotFound, &call, "the controller lists no systems")),
            several => {
                let text = format!("there is more than one system: {}", several.join(", "));
                Err(Error::new(Kind::NotFound, &call, text))
            }
        }
    }

    async fn system_at(&self, path: &str) -> Result<System, Error> {
        let call = format!("GET {path}");
        let (system, tag) = self.get(path).await?;
        let state = match system["PowerState"].as_str() {
            Some("On") => PowerState::On,
            Some("Off") => PowerState::Off,
            Some("PoweringOn") => PowerState::PoweringOn,
            Some("PoweringOff") => PowerState::PoweringOff,
            Some(_) => PowerState::Other,
            None => {
                return Err(Error::new(
                    Kind::Malformed,
                    &call,
                    "the system does not report its `PowerState`",
                ));
            }
        };
        let action = &system["Actions"][RESET];
        let allowed = action["ResetType@Redfish.AllowableValues"].as_array().into_iter().flatten();
        Ok(System {
            path: path.to_owned(),
            state,
            uuid: system["UUID"].as_str().and_then(own_uuid),
            target: action["target"].as_str().map_or_else(
                || format!("{}/Actions/ComputerSystem.Reset", path.trim_end_matches('/')),
                ToOwned::to_owned,
            ),
            allowed: allowed.filter_map(|one| one.as_str().map(ToOwned::to_owned)).collect(),
            tag: tag.or_else(|| HeaderValue::try_from(system["@odata.etag"].as_str()?).ok()),
        })
    }

    async fn get(&self, path: &str) -> Result<(Value, Option<HeaderValue>), Error> {
        let call = format!("GET {path}");
        let answer = self.send(&Method::GET, path, Bytes::new(), None).await?;
        if let Some(error) = refusal(&call, &answer) {
            return Err(error);
        }
        let body = serde_json::from_slice(answer.body())
            .map_err(|_| Error::new(Kind::Malformed, &call, "the answer is not JSON"))?;
        Ok((body, answer.headers().get(ETAG).cloned()))
    }

    async fn send(
        &self,
        method: &Method,
        path: &str,
        body: Bytes,
        tag: Option<HeaderValue>,
    ) -> Result<Response<Bytes>, Error> {
        let call = format!("{method} {path}");
        // A path such as `//host/…` would lead to another host.
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(Error::new(Kind::Malformed, &call, "the link leads away from the controller"));
        }
        let url = format!("{}{path}", self.settings.endpoint.trim_end_matches('/'));
        let mut request = Request::builder()
            .method(method.clone())
            .uri(url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, "application/json");
        if method != Method::GET {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(tag) = tag {
            request = request.header(IF_MATCH, tag);
        }
        let request =
            request.body(body).map_err(|error| Error::new(Kind::Malformed, &call, error.to_string()))?;
        if method != Method::GET {
            let fenced = |fenced: Fenced| Error::new(Kind::Fenced, &call, fenced.to_string());
            self.fence.pass().await.map_err(fenced)?;
        }
        let mut transport = self.transport.clone();
        let sending = async {
            match transport.ready().await {
                Ok(ready) => ready.call(request).await,
                Err(error) => Err(error),
            }
        };
        match tokio::time::timeout(self.settings.timeout, sending).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is::<NotSent>() => {
                let why = error.source().map_or_else(|| error.to_string(), root);
                let text = format!("no connection to {}: {why}", self.settings.endpoint);
                Err(Error::new(Kind::Unreachable, &call, text))
            }
            Ok(Err(error)) => {
                let text = format!("no answer from {}: {}", self.settings.endpoint, chain(error.as_ref()));
                Err(Error::new(Kind::OutcomeUnknown, &call, text))
            }
            Err(_) => {
                let text =
                    format!("no answer from {} within {:?}", self.settings.endpoint, self.settings.timeout);
                Err(Error::new(Kind::OutcomeUnknown, &call, text))
            }
        }
    }
}

/// Returns the UUID if it can identify a system. If all its bits are zero, or all are one, the vendor has not
/// set it.
fn own_uuid(text: &str) -> Option<String> {
    let uuid = uuid::Uuid::try_parse(text).ok().filter(|uuid| !uuid.is_nil() && !uuid.is_max())?;
    Some(uuid.hyphenated().to_string())
}

/// Returns the error in an answer, unless the call succeeded.
fn refusal(call: &str, answer: &Response<Bytes>) -> Option<Error> {
    let status = answer.status();
    if status.is_success() {
        return None;
    }
    let kind = match status.as_u16() {
        401 | 403 => Kind::Unauthorized,
        404 => Kind::NotFound,
        // The answer is from a proxy in front of the controller, or from the controller after it began to
        // handle the request.
        500 | 502 | 504 => Kind::OutcomeUnknown,
        // The controller is too busy to answer a read. It has not refused the reset that would follow.
        429 | 503 if call.starts_with("GET ") => Kind::OutcomeUnknown,
        _ => Kind::Refused,
    };
    Some(Error::new(kind, call, format!("{status}{}", said(answer.body()))))
}

/// Returns the controller's error message: the first message in `ExtendedInfo` or, if there is none, the
/// error's own message.
fn said(body: &Bytes) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let error = &body["error"];
    let more = error["@Message.ExtendedInfo"].as_array().and_then(|all| all.first()?["Message"].as_str());
    let text: String =
        more.or_else(|| error["message"].as_str()).unwrap_or_default().chars().take(LONGEST).collect();
    if text.is_empty() { text } else { format!(": {}", text.replace(char::is_control, " ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;
    use tower::{BoxError, service_fn};

    use super::*;

    const SYSTEM: &str = "/redfish/v1/Systems/1";

    /// The requests that a controller received, as `METHOD path tag body`.
    type Seen = Arc<Mutex<Vec<String>>>;

    /// A controller that returns these answers in order.
    fn controller(answers: Vec<(u16, Value)>) -> (Client, Seen) {
        let (answers, seen) = (Arc::new(Mutex::new(VecDeque::from(answers))), Seen::default());
        let log = seen.clone();
        let transport = Transport::new(service_fn(move |request: Request<Bytes>| {
            let tag = request.headers().get(IF_MATCH).map(|tag| tag.to_str().unwrap().to_owned());
            let body = String::from_utf8_lossy(request.body()).into_owned();
            let tag = tag.unwrap_or_default();
            log.lock().unwrap().push(format!("{} {} {tag} {body}", request.method(), request.uri().path()));
            let (status, body) = answers.lock().unwrap().pop_front().unwrap();
            let response = Response::builder().status(status).header(ETAG, "W/\"7\"");
            async move { Ok::<_, BoxError>(response.body(Bytes::from(body.to_string())).unwrap()) }
        }));
        (client(transport), seen)
    }

    fn client(transport: Transport) -> Client {
        let settings = Settings {
            endpoint: "https://10.0.0.5/".to_owned(),
            system: Some(SYSTEM.to_owned()),
            user: "power".to_owned(),
            timeout: Duration::from_secs(10),
        };
        Client::new(transport, settings, &SecretString::from("hunter2")).unwrap()
    }

    fn system(state: &str) -> (u16, Value) {
        (
            200,
            json!({ "PowerState": state, "Actions": { RESET: { "target": format!("{SYSTEM}/Actions/Reset") } } }),
        )
    }

    #[tokio::test]
    async fn what_is_there_already_is_not_asked_for() {
        for (state, reset, asked) in [
            ("On", Reset::On, false),
            ("PoweringOn", Reset::On, false),
            ("Off", Reset::On, true),
            ("PoweringOff", Reset::On, true),
            ("Off", Reset::ForceOff, false),
            ("PoweringOff", Reset::ForceOff, true),
            ("PoweringOff", Reset::GracefulShutdown, false),
        ] {
            let (client, seen) = controller(vec![system(state), (204, Value::Null)]);
            assert_eq!(client.reset(reset).await.unwrap(), asked, "{reset:?} at {state}");
            assert_eq!(seen.lock().unwrap().len(), 1 + usize::from(asked));
        }
    }

    #[tokio::test]
    async fn one_that_wants_a_tag_is_asked_once_more_with_what_was_read() {
        let (client, seen) =
            controller(vec![system("Off"), (412, Value::Null), system("Off"), (204, Value::Null)]);
        assert!(client.reset(Reset::On).await.unwrap());
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen[3], format!("POST {SYSTEM}/Actions/Reset W/\"7\" {{\"ResetType\":\"On\"}}"));
        // Another client changed the state after this client had read it.
        let (client, seen) = controller(vec![system("Off"), (428, Value::Null), system("On")]);
        assert!(!client.reset(Reset::On).await.unwrap());
        assert_eq!(seen.lock().unwrap().len(), 3);
        // The request is repeated only once.
        let answers = vec![system("Off"), (412, Value::Null), system("Off"), (412, Value::Null)];
        assert_eq!(controller(answers).0.reset(Reset::On).await.unwrap_err().kind, Kind::Refused);
    }

    #[tokio::test]
    async fn a_link_that_leads_away_gets_no_credentials() {
        for target in ["https://elsewhere/x", "//elsewhere/x", "x"] {
            let answer = json!({ "PowerState": "Off", "Actions": { RESET: { "target": target } } });
            let (client, seen) = controller(vec![(200, answer), (204, Value::Null)]);
            assert_eq!(client.reset(Reset::On).await.unwrap_err().kind, Kind::Malformed, "{target}");
            assert_eq!(seen.lock().unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn one_that_is_too_busy_to_be_read_has_refused_nothing() {
        for (answers, kind) in [
            (vec![(503, Value::Null)], Kind::OutcomeUnknown),
            (vec![(429, Value::Null)], Kind::OutcomeUnknown),
            (vec![system("On"), (503, Value::Null)], Kind::Refused),
            (vec![system("On"), (409, Value::Null)], Kind::Refused),
        ] {
            let error = controller(answers).0.reset(Reset::GracefulShutdown).await.unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
        }
    }

    #[tokio::test]
    async fn what_a_controller_cannot_do_is_not_asked_of_it() {
        let (status, mut answer) = system("Off");
        answer["Actions"][RESET]["ResetType@Redfish.AllowableValues"] = json!(["ForceOff", "ForceOn"]);
        let error = controller(vec![(status, answer)]).0.reset(Reset::On).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.to_string().contains("the system supports ForceOff, ForceOn, but not On"), "{error}");
    }

    #[tokio::test]
    async fn the_only_system_is_found_and_several_are_named() {
        let members = |paths: &[&str]| {
            let members: Vec<Value> = paths.iter().map(|path| json!({ "@odata.id": path })).collect();
            (200, json!({ "Members": members }))
        };
        let found = async |answers| {
            let (mut client, _) = controller(answers);
            client.settings.system = None;
            client.power().await
        };
        assert_eq!(found(vec![members(&[SYSTEM]), system("Off")]).await.unwrap(), PowerState::Off);
        let several = found(vec![members(&["/a", "/b"])]).await.unwrap_err();
        assert!(several.to_string().contains("/a, /b"), "{several}");
        assert_eq!(found(vec![members(&[])]).await.unwrap_err().kind, Kind::NotFound);
    }

    #[tokio::test]
    async fn a_refusal_says_what_the_controller_said_and_no_password() {
        let info = json!({ "error": { "message": "general", "@Message.ExtendedInfo": [{ "Message": "bad\nuser" }] } });
        let error = controller(vec![(401, info)]).0.power().await.unwrap_err();
        assert_eq!(error.kind, Kind::Unauthorized);
        let told = format!("{error} {error:?} {:?}", controller(Vec::new()).0);
        assert!(told.contains("bad user") && !told.contains("hunter2") && !told.contains("Basic"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_hangs_is_given_up_and_its_outcome_is_unknown() {
        let hangs = Transport::new(service_fn(|_: Request<Bytes>| {
            std::future::pending::<Result<Response<Bytes>, BoxError>>()
        }));
        let began = Instant::now();
        assert_eq!(client(hangs).power().await.unwrap_err().kind, Kind::OutcomeUnknown);
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_term_nothing_is_switched_and_the_power_can_be_read() {
        let (client, seen) = controller(vec![system("Off"), system("Off")]);
        let client = client.fenced(&Fence::closed());
        assert_eq!(client.reset(Reset::On).await.unwrap_err().kind, Kind::Fenced);
        assert_eq!(client.power().await.unwrap(), PowerState::Off);
        assert!(seen.lock().unwrap().iter().all(|call| call.starts_with("GET")));
    }
}
