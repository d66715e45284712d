//! Controls a machine's power through its management controller (DMTF Redfish, `ComputerSystem`).
//!
//! * Requests use the transport of [`crate::connect`]. The trusted certificates are configured for each
//!   controller.
//! * The state is read first: if the system is already in the requested state, no reset is sent. An answer
//!   only says that the request was accepted; the caller reads the state later.
//! * A reset that may have arrived is never repeated by this module. If a controller refuses a reset because
//!   `If-Match` is missing (412, 428), the reset was not carried out; it is sent again with the tag of the
//!   system's current state.
//! * Credentials are only sent to the endpoint. A link that leads to another server is refused.

mod client;
mod error;

pub use client::{Client, PowerState, Reset, Settings, SystemState};
pub use error::{Error, Kind};
