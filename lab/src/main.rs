//! lab.
fn main() {}
