package main

import (
	"context"
	"fmt"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
)

// daemonPods are the pods that the DaemonSet controller makes for nodes that have none of a set yet.
func daemonPods(ctx context.Context, objects []runtime.Object) []*v1.Pod {
	there := map[string]bool{}
	var nodes []*v1.Node
	var sets []*apps.DaemonSet
	for _, object := range objects {
		switch object := object.(type) {
		case *v1.Pod:
			if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == "DaemonSet" {
				node, err := util.GetTargetNodeName(object)
				if err == nil {
					there[string(owner.UID)+"/"+node] = true
				}
			}
		case *v1.Node:
			nodes = append(nodes, object)
		case *apps.DaemonSet:
			sets = append(sets, object)
		}
	}
	var made []*v1.Pod
	for _, node := range nodes {
		for _, set := range sets {
			wanted, _ := daemon.NodeShouldRunDaemonPod(klog.FromContext(ctx), node, set)
			if wanted && !there[string(set.UID)+"/"+node.Name] {
				made = append(made, daemonPod(set, node))
			}
		}
	}
	return made
}

func daemonPod(set *apps.DaemonSet, node *v1.Node) *v1.Pod {
	template := util.CreatePodTemplate(set.Spec.Template, nil, "1")
	pod := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       set.Namespace,
			Name:            set.Name + "-" + node.Name,
			UID:             types.UID(fmt.Sprintf("%s-%s-%s", set.Namespace, set.Name, node.Name)),
			Labels:          template.Labels,
			Annotations:     template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, apps.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: template.Spec,
	}
	pod.Spec.Affinity = util.ReplaceDaemonSetPodNodeNameNodeAffinity(pod.Spec.Affinity, node.Name)
	legacyscheme.Scheme.Default(pod)
	return pod
}
