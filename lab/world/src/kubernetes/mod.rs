//! An embedded Kubernetes API server with the controllers that an autoscaler meets.
