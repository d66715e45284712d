package main

import (
	"context"
	"fmt"
	"math/rand"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type bindings struct {
	// Pods of DaemonSets that their controller has made.
	Made []*v1.Pod `json:"made"`
	// The node of each pod that the scheduler has put somewhere.
	Bound map[string]string `json:"bound"`
	// What the scheduler says of each pod that it has put nowhere.
	Waiting map[string]string `json:"waiting"`
}

// bind runs a scheduling cycle for each waiting pod. DaemonSets' pods come first whatever their priority, as on nodes that are not ready yet.
func bind(ctx context.Context, seed int64, objects []runtime.Object) (any, error) {
	made := daemonPods(ctx, objects)
	all := make([]runtime.Object, 0, len(objects)+len(made))
	for _, pod := range made {
		all = append(all, pod)
	}
	it, err := newCluster(ctx, append(all, objects...), nil)
	if err != nil {
		return nil, err
	}
	defer it.stop()
	said := bindings{Made: made, Bound: map[string]string{}, Waiting: map[string]string{}}
	queued, err := it.popAll(ctx)
	if err != nil {
		return nil, err
	}
	for _, info := range queued {
		// What the scheduler leaves to chance: which of the nodes with the best score it takes.
		seed++
		rand.Seed(seed)
		node, err := it.cycle(ctx, info)
		if err != nil {
			return nil, err
		}
		if node.refused != "" {
			said.Waiting[id(info.Pod)] = node.refused
		} else {
			said.Bound[id(info.Pod)] = node.name
		}
	}
	for _, pod := range it.waiting {
		if _, ok := said.Bound[id(pod)]; !ok && said.Waiting[id(pod)] == "" {
			said.Waiting[id(pod)] = "not in the queue"
		}
	}
	return said, nil
}

// popAll empties the queue, in its own order but for DaemonSets' pods.
func (it *cluster) popAll(ctx context.Context) ([]*framework.QueuedPodInfo, error) {
	var first, others []*framework.QueuedPodInfo
	for len(it.SchedulingQueue.PodsInActiveQ()) > 0 {
		entity, err := it.NextEntity(klog.FromContext(ctx))
		if err != nil {
			return nil, err
		}
		info, ok := entity.(*framework.QueuedPodInfo)
		if !ok {
			return nil, fmt.Errorf("the queue holds a %T", entity)
		}
		if owner := metav1.GetControllerOf(info.Pod); owner != nil && owner.Kind == "DaemonSet" {
			first = append(first, info)
		} else {
			others = append(others, info)
		}
	}
	return append(first, others...), nil
}

func id(pod *v1.Pod) string {
	return pod.Namespace + "/" + pod.Name
}

type outcome struct {
	name    string
	refused string
}

// cycle is what the scheduler does for one pod up to where it asks the API server to bind it.
func (it *cluster) cycle(ctx context.Context, info *framework.QueuedPodInfo) (outcome, error) {
	logger := klog.FromContext(ctx)
	defer it.SchedulingQueue.Done(info.Pod.UID)
	profile := it.Profiles[info.Pod.Spec.SchedulerName]
	if err := it.Cache.UpdateSnapshot(logger, it.snapshot); err != nil {
		return outcome{}, err
	}
	state := framework.NewCycleState()
	result, err := it.SchedulePod(ctx, profile, state, info)
	if err != nil {
		// It fits nowhere, or a filter fails: the pod waits either way.
		return outcome{refused: err.Error()}, nil
	}
	assumed := info.Pod.DeepCopy()
	assumed.Spec.NodeName = result.SuggestedHost
	if err := it.Cache.AssumePod(logger, assumed); err != nil {
		return outcome{}, err
	}
	it.SchedulingQueue.DeleteNominatedPodIfExists(assumed)
	if status := profile.RunReservePluginsReserve(ctx, state, assumed, result.SuggestedHost); !status.IsSuccess() {
		profile.RunReservePluginsUnreserve(ctx, state, assumed, result.SuggestedHost)
		return outcome{refused: status.Message()}, it.Cache.ForgetPod(logger, assumed)
	}
	return outcome{name: result.SuggestedHost}, nil
}
