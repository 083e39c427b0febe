package transform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const key = "tabcde12345"

func TestMirrorPod(t *testing.T) {
	down := object(t, `
metadata:
  name: web-1
  namespace: kcp-x
  generateName: web-
  uid: u-9
  labels: {app: web, pod-template-hash: h, workload.kcp.io/syncer: t1}
  annotations: {example.com/a: b, workload.kcp.io/x: z}
  ownerReferences: [{kind: ReplicaSet, name: web, uid: z, apiVersion: apps/v1}]
spec:
  nodeName: n1
  priorityClassName: high
  priority: 5
  serviceAccountName: default
  containers: [{name: c, image: i, volumeMounts: [{name: kube-api-access-1, mountPath: /t}]}]
  volumes: [{name: kube-api-access-1}]
status:
  phase: Running
  hostIP: 10.9.9.9
  hostIPs: [{ip: 10.9.9.9}]
  podIP: 10.1.1.1
  qosClass: BestEffort
  conditions: [{type: Ready, status: "True"}]`)
	want := object(t, `
apiVersion: v1
kind: Pod
metadata:
  name: web-1-12345
  namespace: shop
  labels: {app: web, pod-template-hash: h, workload.kcp.io/target: tabcde12345}
  annotations: {example.com/a: b, workload.kcp.io/mirrored-uid: u-9}
spec:
  serviceAccountName: default
  containers: [{name: c, image: i}]
status:
  phase: Running
  podIP: 10.1.1.1
  conditions: [{type: Ready, status: "True"}]`)
	before := down.DeepCopy()
	got := MirrorPod(down, "shop", key)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("MirrorPod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, down.Object); diff != "" {
		t.Errorf("MirrorPod changed its argument (-before +after):\n%s", diff)
	}
}

func TestMirrorEndpointSlice(t *testing.T) {
	down := object(t, `
metadata:
  name: web-abc
  namespace: kcp-x
  uid: u-9
  labels:
    kubernetes.io/service-name: web
    endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
    workload.kcp.io/syncer: t1
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: now}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- addresses: [10.1.1.1]
  conditions: {ready: false, serving: true, terminating: true}
  nodeName: n1
  zone: z1
  hints: {forZones: [{name: z1}]}
  targetRef: {kind: Pod, name: web-1, namespace: kcp-x, uid: u-1}
- addresses: [10.1.1.2]
  targetRef: {kind: Node, name: n1}`)
	want := object(t, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-abc-12345
  namespace: shop
  labels:
    kubernetes.io/service-name: web
    endpointslice.kubernetes.io/managed-by: kcp-syncer
    workload.kcp.io/target: tabcde12345
  annotations: {workload.kcp.io/mirrored-uid: u-9}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- addresses: [10.1.1.1]
  conditions: {ready: false, serving: true, terminating: true}
  targetRef: {kind: Pod, name: web-1-12345, namespace: shop}
- addresses: [10.1.1.2]`)
	before := down.DeepCopy()
	got := MirrorEndpointSlice(down, "shop", key)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("MirrorEndpointSlice (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object, down.Object); diff != "" {
		t.Errorf("MirrorEndpointSlice changed its argument (-before +after):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	cases := map[string]struct {
		obj  string
		want bool
	}{
		"None":         {`{spec: {}}`, false},
		"Empty":        {`{status: {}}`, false},
		"NoAddress":    {`{status: {loadBalancer: {}}}`, false},
		"Address":      {`{status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}`, true},
		"ZeroReplicas": {`{status: {replicas: 0}}`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Status(object(t, tc.obj)) != nil; got != tc.want {
				t.Errorf("Status() says something: %t, want %t", got, tc.want)
			}
		})
	}
}
