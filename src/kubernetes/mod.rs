//! Kubernetes: the only place that names kube's and k8s-openapi's types.

pub mod convert;
