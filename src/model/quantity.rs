//! Kubernetes quantities (`100m`, `1.5Gi`, `12e6`): the rules of `k8s.io/apimachinery/pkg/api/resource`.
