//! Code that all crates with side effects share: the clock, the fence around writes, change signals, and
//! errors with their causes.

pub mod clock;
pub mod error_chain;
pub mod fence;
pub mod ordered_notify;

/// Makes an async function return a boxed future. Nearly every async function that other crates call has this
/// attribute. Without it, each crate that awaits the function compiles its body again. A third of the time of
/// a release build was spent on such copies.
pub use async_recursion::async_recursion as boxed;
