// What differs from release to release of Kubernetes. This is for the newest; others have a file of their own in its place.
package main

import (
	"context"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
