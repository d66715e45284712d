//! Controls a machine's power through its management controller (DMTF Redfish, `ComputerSystem`).
//!
//! * Requests go over the transport of [`crate::connect`]; the trusted certificates are configured for each
//!   controller.
//! * The system may already be in the requested state, so the state is read first, and no reset is sent in
//!   that case. An answer only says that the request was accepted; the caller reads the state later.
//! * A reset that may have arrived is never repeated here. If a controller refuses one because `If-Match` is
//!   missing (412, 428), it was not carried out: it is sent again with the tag of the system as just read.
//! * Credentials are only sent to the endpoint: a link that leads elsewhere is refused.

mod client;
mod error;

pub use client::{Client, PowerState, Reset, Settings, SystemState};
pub use error::{Error, Kind};
