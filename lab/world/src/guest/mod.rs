//! The inside of a virtual machine, as far as an autoscaler can see it through the guest agent: systemd's state,
//! `/bin/sh -c` with the few programs of a kubeadm template, and the kubelet once it has joined.

pub mod control_plane;
