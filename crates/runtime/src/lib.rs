//! Code that all crates with side effects share: the clock, the fence around writes, change signals, and
//! errors with their causes.

pub mod clock;
pub mod error_chain;
pub mod fence;
pub mod ordered_notify;

/// Makes an async function return a boxed future. Nearly every async function that other crates call has this
/// attribute. Without it, each crate that awaits the function compiles the function's body again. Compiling
/// such copies once took a third of a release build's time.
pub use async_recursion::async_recursion as boxed;
