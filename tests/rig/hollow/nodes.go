package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/pkg/version"
)

// A kubelet renews its Lease every ten seconds, and reports its status every five minutes where nothing changed.
const (
	leaseEvery  = 10 * time.Second
	statusEvery = 5 * time.Minute
	leaseSpace  = "kube-node-lease"
)

// fleet is all of the nodes.
type fleet struct {
	client *kubernetes.Clientset
	count  int
}

func name(at int) string { return fmt.Sprintf("hollow-%04d", at) }

// each calls for every node, many at a time; the first error.
func (f fleet) each(call func(at int) error) error {
	var group sync.WaitGroup
	todo := make(chan int)
	failed := make(chan error, workers)
	for range workers {
		group.Go(func() {
			for at := range todo {
				if err := call(at); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for at := range f.count {
		todo <- at
	}
	close(todo)
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (f fleet) register(ctx context.Context) error {
	return f.each(func(at int) error {
		_, err := f.client.CoreV1().Nodes().Create(ctx, node(at), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err = f.client.CoordinationV1().Leases(leaseSpace).Create(ctx, lease(at), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// beat keeps the nodes alive: each at its own moment, as kubelets do. What fails is done again ten seconds later.
func (f fleet) beat(ctx context.Context) {
	for at := range f.count {
		go func() {
			time.Sleep(leaseEvery * time.Duration(at) / time.Duration(f.count))
			for beats := 0; ; beats++ {
				f.renew(ctx, at)
				if (beats+at)%int(statusEvery/leaseEvery) == 0 {
					_, _ = f.client.CoreV1().Nodes().UpdateStatus(ctx, node(at), metav1.UpdateOptions{})
				}
				time.Sleep(leaseEvery)
			}
		}()
	}
}

func (f fleet) renew(ctx context.Context, at int) {
	_, _ = f.client.CoordinationV1().Leases(leaseSpace).Update(ctx, lease(at), metav1.UpdateOptions{})
}

func lease(at int) *coordination.Lease {
	holder, seconds, now := name(at), int32(40), metav1.NowMicro()
	return &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: holder, Namespace: leaseSpace},
		Spec: coordination.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now,
		},
	}
}

func node(at int) *v1.Node {
	room := v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("4"),
		v1.ResourceMemory:           resource.MustParse("16Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("50Gi"),
		v1.ResourcePods:             resource.MustParse("110"),
	}
	now := metav1.Now()
	healthy := func(kind v1.NodeConditionType, status v1.ConditionStatus, reason string) v1.NodeCondition {
		return v1.NodeCondition{
			Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(at),
			Labels: map[string]string{
				v1.LabelHostname: name(at), v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
				v1.LabelTopologyZone: fmt.Sprintf("zone-%d", at%3),
			},
		},
		Spec: v1.NodeSpec{PodCIDR: fmt.Sprintf("10.%d.%d.0/24", 100+at/250, at%250)},
		Status: v1.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions: []v1.NodeCondition{
				healthy(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory"),
				healthy(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure"),
				healthy(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID"),
				healthy(v1.NodeReady, v1.ConditionTrue, "KubeletReady"),
			},
			Addresses: []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: fmt.Sprintf("198.18.%d.%d", at/250, 1+at%250)},
				{Type: v1.NodeHostName, Address: name(at)},
			},
			NodeInfo: v1.NodeSystemInfo{
				SystemUUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", at), KernelVersion: "6.12.0",
				OSImage: "Debian GNU/Linux 13 (trixie)", ContainerRuntimeVersion: "containerd://2.1.9",
				KubeletVersion: version.Get().GitVersion, OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}
