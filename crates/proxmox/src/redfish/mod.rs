//! The power of a machine by its management controller (DMTF Redfish, `ComputerSystem`).
//!
//! * Plain `http` requests over the transport of [`crate::connect`]; whom to trust is said for each
//!   controller.
//! * A reset asks for a state that may be there already: the state is read first, and nothing is asked then.
//!   Its answer says only that it was taken; the caller reads the state later.
//! * A reset that may have arrived is never repeated here. One that a controller refuses for want of an
//!   `If-Match` (412, 428) was not carried out: it is asked once more, with the tag of the system as it was
//!   just read.
//! * Credentials go to the endpoint alone: a link that leads elsewhere is refused.

mod client;
mod error;

pub use client::{Client, PowerState, Reset, Settings, SystemState};
pub use error::{Error, Kind};
