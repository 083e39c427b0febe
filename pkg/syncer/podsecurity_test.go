package syncer

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsecurity "k8s.io/pod-security-admission/api"
)

// TestPodSecurity: a tenant's pod cannot take over the node that it runs on, the tenant is
// told so, and the namespace stays that way.
func TestPodSecurity(t *testing.T) {
	w := newWorld(t)
	w.assign()
	w.start()
	w.put("pods", `
apiVersion: v1
kind: Pod
metadata: {name: taker}
spec: {hostNetwork: true, containers: [{name: c, image: "demo.local/app:v1", securityContext: {privileged: true}}]}`)
	w.eventually("the pod is refused", func() bool { return field(w.report("pods", "", "taker"), "report", "synced") == false })
	if message, _ := field(w.report("pods", "", "taker"), "report", "message").(string); !strings.Contains(message, "hostNetwork=true") || !strings.Contains(message, "privileged=true") {
		t.Errorf("the tenant is told %q, want what is forbidden", message)
	}

	client := w.kube.CoreV1().Namespaces()
	if _, err := client.Patch(t.Context(), w.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+podsecurity.EnforceLevelLabel+`":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the standard is set again", func() bool {
		ns, err := client.Get(t.Context(), w.namespace, metav1.GetOptions{})
		return err == nil && ns.Labels[podsecurity.EnforceLevelLabel] == string(podsecurity.LevelBaseline)
	})
}

// TestExternalIPs: a tenant cannot draw the traffic of others to a Service.
func TestExternalIPs(t *testing.T) {
	w := newWorld(t)
	w.assign()
	w.start()
	w.put("services", strings.Replace(service, "type: ClusterIP", `type: ClusterIP, externalIPs: ["192.0.2.9"]`, 1))
	w.eventually("the Service is there", func() bool { return w.downstream(gvr("", "v1", "services"), "web") != nil })
	if got := field(w.downstream(gvr("", "v1", "services"), "web"), "spec", "externalIPs"); got != nil {
		t.Errorf("its externalIPs are %v, want none", got)
	}
}
