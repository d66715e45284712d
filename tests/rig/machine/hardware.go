package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/dra"
)

// The kubelet's default hard eviction thresholds, which it takes off what pods may use: memory.available<100Mi and
// nodefs.available<10%.
const evictionMemory = 100 << 20

// containerManager has no cgroups, and reserves what a kubelet with default settings does.
type containerManager struct {
	cm.ContainerManager
	hardware
	devices *dra.Manager
}

// newContainerManager keeps what it knows of prepared claims in the folder.
func newContainerManager(ctx context.Context, hardware hardware, client clientset.Interface, folder string) (cm.ContainerManager, error) {
	devices, err := dra.NewManager(klog.FromContext(ctx), client, folder)
	return &containerManager{cm.NewStubContainerManager(), hardware, devices}, err
}

func (m *containerManager) capacity() v1.ResourceList {
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk, resource.BinarySI)}
}

func (m *containerManager) GetNodeAllocatableReservation() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceMemory:           *resource.NewQuantity(evictionMemory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk/10, resource.BinarySI),
	}
}
