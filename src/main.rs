//! pve-autoscaler.
fn main() {}
