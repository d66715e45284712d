//! An embedded Proxmox VE cluster.
