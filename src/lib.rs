//! pve-autoscaler.
