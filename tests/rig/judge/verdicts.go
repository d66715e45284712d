package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// The filters of the default profile, in an order in which the first to refuse is named first.
var filters = []string{
	"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions",
	"NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures",
	"DynamicResources",
}

// Those of them that look at the pod first.
var preFilters = []string{
	"NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone",
	"PodTopologySpread", "InterPodAffinity", "NodeDeclaredFeatures", "DynamicResources",
}

type verdict struct {
	Feasible []string            `json:"feasible"`
	Refused  map[string][]string `json:"refused"`
	All      map[string][]string `json:"all"`
	Why      map[string][]string `json:"why"`
}

// verdicts asks the filters about each waiting pod and each node: all together, as in a scheduling cycle, and each alone.
func verdicts(ctx context.Context, objects []runtime.Object) (any, error) {
	it, err := newCluster(ctx, objects, filters)
	if err != nil {
		return nil, err
	}
	defer it.stop()
	said := map[string]*verdict{}
	for _, pod := range it.waiting {
		one := &verdict{Feasible: []string{}, Refused: map[string][]string{}, All: map[string][]string{}, Why: map[string][]string{}}
		said[id(pod)] = one
		together, err := it.statuses(ctx, it.Profiles["default-scheduler"], pod)
		if err != nil {
			return nil, err
		}
		for _, name := range filters {
			alone, err := it.statuses(ctx, it.Profiles["only-"+name], pod)
			if err != nil {
				return nil, err
			}
			for _, node := range it.nodes {
				if status := alone[node.Name]; !status.IsSuccess() {
					if one.All[node.Name] == nil {
						one.Refused[node.Name] = []string{name}
						why := name + ": " + status.Message()
						one.Why[why] = append(one.Why[why], node.Name)
					}
					one.All[node.Name] = append(one.All[node.Name], name)
				}
			}
		}
		for _, node := range it.nodes {
			if together[node.Name].IsSuccess() {
				one.Feasible = append(one.Feasible, node.Name)
			}
			if together[node.Name].IsSuccess() == (one.All[node.Name] != nil) {
				return nil, fmt.Errorf("%s on %s: together %v, alone %v", id(pod), node.Name, together[node.Name], one.All[node.Name])
			}
		}
	}
	return map[string]any{"pods": said}, nil
}

// statuses are what the filters of a profile say of a pod on each node. An error keeps a pod from a node as well.
func (it *cluster) statuses(ctx context.Context, profile framework.Framework, pod *v1.Pod) (map[string]*fwk.Status, error) {
	all := map[string]*fwk.Status{}
	state := framework.NewCycleState()
	result, before, _ := profile.RunPreFilterPlugins(ctx, state, pod)
	for _, node := range it.nodes {
		status := before
		if status.IsSuccess() && !result.AllNodes() && !result.NodeNames.Has(node.Name) {
			status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the pod names other nodes")
		}
		if status.IsSuccess() {
			info, err := it.snapshot.Get(node.Name)
			if err != nil {
				return nil, err
			}
			status = profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
		}
		all[node.Name] = status
	}
	return all, nil
}
