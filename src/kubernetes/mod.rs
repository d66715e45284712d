//! Kubernetes: watches → snapshot; records; drain; tokens; events. The only place that names kube types.
