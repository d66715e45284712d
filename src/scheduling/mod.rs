//! Would this pod fit this node? One file a filter of kube-scheduler, with its reasons.
