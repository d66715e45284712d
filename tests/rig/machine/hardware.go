package main

import (
	"context"

	info "github.com/google/cadvisor/info/v1"
	infov2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// The kubelet's default hard eviction thresholds, which it takes off what pods may use: memory.available<100Mi and
// nodefs.available<10%.
const evictionMemory = 100 << 20

// cadvisor tells the kubelet of the machine.
type cadvisor struct{ hardware }

// The rest of the interface is never asked for anything that matters here.
var fake cadvisortest.Fake

func (c *cadvisor) Start() error { return nil }

func (c *cadvisor) MachineInfo() (*info.MachineInfo, error) {
	return &info.MachineInfo{
		NumCores:       c.cpus,
		MemoryCapacity: c.memory,
		SystemUUID:     c.uuid,
		MachineID:      c.uuid,
		BootID:         c.bootID,
	}, nil
}

func (c *cadvisor) VersionInfo() (*info.VersionInfo, error) {
	return &info.VersionInfo{KernelVersion: "6.12.0", ContainerOsVersion: "Debian GNU/Linux 13 (trixie)"}, nil
}

func (c *cadvisor) ContainerInfoV2(name string, options infov2.RequestOptions) (map[string]infov2.ContainerInfo, error) {
	return fake.ContainerInfoV2(name, options)
}

func (c *cadvisor) GetRequestedContainersInfo(name string, options infov2.RequestOptions) (map[string]*info.ContainerInfo, error) {
	return fake.GetRequestedContainersInfo(name, options)
}

func (c *cadvisor) ImagesFsInfo(context.Context) (infov2.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) RootFsInfo() (infov2.FsInfo, error) {
	size := uint64(max(c.disk, 0))
	return infov2.FsInfo{Capacity: size, Available: size - size/5, Usage: size / 5}, nil
}

func (c *cadvisor) ContainerFsInfo(context.Context) (infov2.FsInfo, error) { return c.RootFsInfo() }

func (c *cadvisor) GetDirFsInfo(string) (infov2.FsInfo, error) { return c.RootFsInfo() }

// containerManager has no cgroups, and reserves what a kubelet with default settings does.
type containerManager struct {
	cm.ContainerManager
	hardware
}

func newContainerManager(hardware hardware) cm.ContainerManager {
	return &containerManager{cm.NewStubContainerManager(), hardware}
}

func (m *containerManager) GetCapacity(bool) v1.ResourceList {
	return v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk, resource.BinarySI)}
}

func (m *containerManager) GetNodeAllocatableReservation() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceMemory:           *resource.NewQuantity(evictionMemory, resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk/10, resource.BinarySI),
	}
}
