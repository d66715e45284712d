//! Shared by all crates that act: the time, the fence around writes, signals of change, and errors with their
//! causes.

pub mod clock;
pub mod error_chain;
pub mod fence;
pub mod ordered_notify;

/// Makes an async function return a boxed future. Every async function that other crates call has it: the
/// compiler would otherwise compile the function's body once more in each crate that awaits it, and not in its
/// own. A third of the program's code and of the time to build it were such copies.
pub use async_recursion::async_recursion as boxed;
