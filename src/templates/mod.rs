//! Templates that are described in the configuration: what there is of each, what is to be done, and doing
//! it.
//!
//! ```text
//!  config::Template ──┐
//!                     ├─> survey (pure): steps ──> make: download → create → resize → convert → name
//!  VMs with our mark ─┘
//! ```
//!
//! Invariants: nothing is changed or destroyed that does not bear the mark of this very template, read back
//! from the VM's own configuration just before; a version that is in use goes on under its VMID, only its
//! name changes; whatever is interrupted is finished by the next run. While versions change there is always a
//! template of the name that pools use.

mod make;
mod mark;
mod rights;
mod survey;

pub use make::{Stop, look, make, places};
pub use mark::TemplateMark;
pub use rights::missing;
pub use survey::{Found, Place, Step, steps, version};
