//! Shared by all crates with side effects: the clock, the fence around writes, signals of change, and errors
//! with their causes.

pub mod clock;
pub mod error_chain;
pub mod fence;
pub mod ordered_notify;

/// Makes an async function return a boxed future. Every async function that other crates call has this
/// attribute. Otherwise, the compiler compiles the function's body once more in each crate that awaits it,
/// and not in its own. A third of the time of a release build was spent on such copies.
pub use async_recursion::async_recursion as boxed;
