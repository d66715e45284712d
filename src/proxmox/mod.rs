//! The Proxmox VE client: REST, tasks, clone, guest agent, inventory. The only place that names reqwest types.
