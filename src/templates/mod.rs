//! Templates that the configuration describes: finds the existing versions, decides which steps are needed,
//! and carries them out.
//!
//! ```text
//!  settings::Template ┐
//!                     ├─> survey (pure): steps ──> make: download → create → resize → convert → name
//!  VMs with the mark ─┘
//! ```
//!
//! Invariants: a VM is changed or destroyed only if it bears the mark of this template, read back from the
//! VM's own configuration just before. A version that is in use keeps its VMID; only its name changes. The
//! next run finishes interrupted work. While versions change, there is always a template with the name that
//! pools use.

mod make;
mod mark;
mod rights;
mod survey;

pub use make::{Stop, look, make, places};
pub use mark::TemplateMark;
pub use rights::missing;
pub use survey::{Found, Place, Step, steps, version};
