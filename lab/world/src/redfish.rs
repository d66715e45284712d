//! Redfish management controllers of the embedded hosts and of bare-metal machines. Each controller has one
//! system.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::{kubernetes::Kube, proxmox::Pve};

/// The credentials that allow switching hosts on and off.
pub const USER: (&str, &str) = ("power", "lab");
const SYSTEM: &str = "/redfish/v1/Systems/1";

/// Answers a request to the controller of a host or machine.
pub fn handle(pve: &Pve, kube: &Kube, host: &str, request: &Request<Bytes>) -> Response<Bytes> {
    let pair = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
    let known = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if known != Some(&format!("Basic {pair}")) {
        return answer(StatusCode::UNAUTHORIZED, &json!({ "error": { "message": "who are you?" } }));
    }
    if kube.metal_is_silent(host) {
        return answer(StatusCode::BAD_GATEWAY, &json!({ "error": { "message": "no answer" } }));
    }
    match (request.method().as_str(), request.uri().path()) {
        ("GET", "/redfish/v1/Systems") => {
            answer(StatusCode::OK, &json!({ "Members": [{ "@odata.id": SYSTEM }] }))
        }
        ("GET", SYSTEM) => {
            let on = kube.metal_is_on(host).unwrap_or_else(|| pve.has_power(host));
            let power = if on { "On" } else { "Off" };
            let uuid = kube.metal_uuid(host);
            answer(
                StatusCode::OK,
                &json!({
                    "UUID": uuid,
                    "@odata.id": SYSTEM, "PowerState": power, "Name": host,
                    "Actions": { "#ComputerSystem.Reset": {
                        "target": format!("{SYSTEM}/Actions/ComputerSystem.Reset"),
                        "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "GracefulShutdown"],
                    } },
                }),
            )
        }
        ("POST", path) if path == format!("{SYSTEM}/Actions/ComputerSystem.Reset") => {
            let body: Value = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
            match body["ResetType"].as_str() {
                Some(what) if kube.has_metal(host) => {
                    if let Err(status) = kube.ask_metal(host, what) {
                        return answer(status, &json!({ "error": { "message": "not now" } }));
                    }
                }
                Some("On") => pve.press_power(host),
                Some("ForceOff") => pve.power_off_host(host),
                _ => {
                    return answer(
                        StatusCode::BAD_REQUEST,
                        &json!({ "error": { "message": "not supported" } }),
                    );
                }
            }
            answer(StatusCode::NO_CONTENT, &Value::Null)
        }
        _ => answer(StatusCode::NOT_FOUND, &json!({ "error": { "message": "nothing is there" } })),
    }
}

fn answer(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response
}
