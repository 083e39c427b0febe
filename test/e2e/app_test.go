package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// greeting is what the application answers with, from a ConfigMap.
const greeting = "hello"

// app is an application in a namespace of the user's workspace: ConfigMap, Secret,
// Deployment, Service and Ingress. Its host is <namespace>.example.com.
type app struct {
	namespace string
	// drainSeconds is how long its pods take to end.
	drainSeconds int
	// podLabel, when set, is a label that a node must have to run its pods.
	podLabel string
	// extraLabel, when set, adds a second backend to the Ingress: a DaemonSet on nodes
	// with the label. Where no node has it that is complete, and has no endpoint.
	extraLabel string
	// nodePort, when set, is a port that the Service takes on every node.
	nodePort int
}

func (a app) host() string { return a.namespace + ".example.com" }

func (a app) yaml() string {
	selector, serviceType, nodePort, extra, path := "", "ClusterIP", "", "", ""
	if a.podLabel != "" {
		selector = fmt.Sprintf("nodeSelector: {%s: \"yes\"}", a.podLabel)
	}
	if a.nodePort != 0 {
		serviceType, nodePort = "NodePort", fmt.Sprintf(", nodePort: %d", a.nodePort)
	}
	if a.extraLabel != "" {
		extra = strings.NewReplacer("LABEL", a.extraLabel).Replace(extraYAML)
		path = "\n      - {path: /extra, pathType: Prefix, backend: {service: {name: extra, port: {name: http}}}}"
	}
	return strings.NewReplacer(
		"HOST", a.host(), "GREETING_TEXT", greeting, "ENDS_AFTER", fmt.Sprint(a.drainSeconds), "SELECTOR", selector,
		"SERVICE_TYPE", serviceType, "NODE_PORT", nodePort, "EXTRA_PATH", path,
	).Replace(appYAML) + extra
}

const appYAML = `apiVersion: v1
kind: ConfigMap
metadata: {name: demo}
data: {greeting: "GREETING_TEXT"}
---
apiVersion: v1
kind: Secret
metadata: {name: demo}
stringData: {token: "s3cret"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo}
spec:
  replicas: 1
  selector: {matchLabels: {app: demo}}
  template:
    metadata: {labels: {app: demo}}
    spec:
      SELECTOR
      containers:
      - name: demo
        image: demo.local/app:v1
        env:
        - {name: DRAIN_SECONDS, value: "ENDS_AFTER"}
        - {name: GREETING, valueFrom: {configMapKeyRef: {name: demo, key: greeting}}}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: demo, key: token}}}
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
      terminationGracePeriodSeconds: 60
---
apiVersion: v1
kind: Service
metadata: {name: demo}
spec:
  type: SERVICE_TYPE
  selector: {app: demo}
  ports: [{name: http, port: 80, targetPort: http NODE_PORT}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: demo}
spec:
  rules:
  - host: HOST
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: demo, port: {name: http}}}}EXTRA_PATH
`

const extraYAML = `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: extra}
spec:
  selector: {matchLabels: {app: extra}}
  template:
    metadata: {labels: {app: extra}}
    spec:
      nodeSelector: {LABEL: "yes"}
      containers:
      - name: extra
        image: demo.local/app:v1
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: extra}
spec:
  selector: {app: extra}
  ports: [{name: http, port: 80, targetPort: http}]
`

// deploy deploys applications, waits until each serves through both gateways, and asks
// for it from then on.
func (w *world) deploy(t *testing.T, apps ...app) {
	t.Helper()
	server := serverURL + "/clusters/root:shop"
	for _, a := range apps {
		w.exec(t, "", "kubectl", "--server", server, "create", "namespace", a.namespace)
		w.exec(t, a.yaml(), "kubectl", "--server", server, "apply", "-n", a.namespace, "-f", "-")
	}
	for _, a := range apps {
		for _, g := range w.gateways {
			eventually(t, time.Minute, a.namespace+" serves through "+g.name, func() (bool, string) {
				answer, err := w.prober.get(t.Context(), g.address, a.host(), "/hello")
				return err == nil, fmt.Sprint(answer, err)
			})
		}
		eventually(t, time.Minute, a.namespace+" is settled", func() (bool, string) {
			got := w.where(t, a.namespace)
			return strings.HasSuffix(got, "=Serving"), got
		})
		w.prober.add(t.Context(), a.host())
	}
}

// undeploy deletes applications with their namespaces, without waiting.
func (w *world) undeploy(t *testing.T, apps ...app) {
	t.Helper()
	for _, a := range apps {
		w.prober.remove(a.host())
	}
	for _, a := range apps {
		if err := w.clients.Core(w.shop).Namespaces().Delete(t.Context(), a.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
