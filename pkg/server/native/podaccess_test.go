package native

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
	"github.com/13eedeaf/kcp/pkg/tunnel"
)

func assignment(target string, phase schedulingv1alpha1.AssignmentPhase) *schedulingv1alpha1.Assignment {
	return &schedulingv1alpha1.Assignment{
		ObjectMeta: metav1.ObjectMeta{Name: target},
		Spec:       schedulingv1alpha1.AssignmentSpec{Target: target},
		Status:     schedulingv1alpha1.AssignmentStatus{Phase: phase},
	}
}

func TestPlaced(t *testing.T) {
	const east, west = "aaaaaaaeast1", "aaaaaaawest1"
	cases := map[string]struct {
		pod         string
		target      *string
		assignments []*schedulingv1alpha1.Assignment
		want        string
		wantErr     string
	}{
		"Mirrored":          {pod: "web-1-east1", target: new(east), assignments: []*schedulingv1alpha1.Assignment{assignment(west, schedulingv1alpha1.AssignmentServing)}, want: east + "/web-1"},
		"MirroredMisnamed":  {pod: "web-1", target: new(east), wantErr: "does not have the name that target"},
		"MirroredEmpty":     {pod: "web-1", target: new(""), wantErr: "does not have the name that target"},
		"Own":               {pod: "tool", assignments: []*schedulingv1alpha1.Assignment{assignment(east, "")}, want: east + "/tool"},
		"OwnWhereItServes":  {pod: "tool", assignments: []*schedulingv1alpha1.Assignment{assignment(east, schedulingv1alpha1.AssignmentSyncing), assignment(west, schedulingv1alpha1.AssignmentServing)}, want: west + "/tool"},
		"OwnOnTwo":          {pod: "tool", assignments: []*schedulingv1alpha1.Assignment{assignment(west, schedulingv1alpha1.AssignmentServing), assignment(east, schedulingv1alpha1.AssignmentServing)}, want: east + "/tool"},
		"OwnNotPlaced":      {pod: "tool", wantErr: `pod "tool" has not been placed on a cluster`},
		"OwnNamedAsAMirror": {pod: "tool-east1", assignments: []*schedulingv1alpha1.Assignment{assignment(east, "")}, want: east + "/tool-east1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &PodAccess{Assignments: func(cluster logicalcluster.Name, namespace string) []*schedulingv1alpha1.Assignment {
				if cluster != "c1" || namespace != "shop" {
					t.Errorf("asked for the assignments of %s/%s", cluster, namespace)
				}
				return tc.assignments
			}}
			pod := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: tc.pod, Namespace: "shop"}}
			if tc.target != nil {
				pod.Labels = map[string]string{"workload.kcp.io/target": *tc.target}
			}
			target, downstream, err := p.placed("c1", pod)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("err = %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if got := target + "/" + downstream; err != nil || got != tc.want {
				t.Errorf("placed = %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}

// Nothing that says who the caller is goes to a physical cluster.
func TestForwardedHeader(t *testing.T) {
	in := http.Header{
		"Authorization":          {"Bearer secret"},
		"Cookie":                 {"session=secret"},
		"Impersonate-User":       {"admin"},
		"X-Remote-User":          {"admin"},
		"X-Forwarded-For":        {"10.0.0.1"},
		"Connection":             {"Upgrade"},
		"Upgrade":                {"websocket"},
		"Sec-Websocket-Key":      {"k"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0", "v4.channel.k8s.io"},
	}
	want := http.Header{
		"Connection":             {"Upgrade"},
		"Upgrade":                {"websocket"},
		"Sec-Websocket-Key":      {"k"},
		"Sec-Websocket-Protocol": {"v5.channel.k8s.io,v4.channel.k8s.io"},
	}
	if diff := cmp.Diff(want, forwardedHeader(in)); diff != "" {
		t.Errorf("forwarded (-want +got):\n%s", diff)
	}
}

func TestUnreachable(t *testing.T) {
	cases := map[string]struct {
		err  error
		is   func(error) bool
		want string
	}{
		"NotConnected": {fmt.Errorf("dial: %w", tunnel.ErrNotConnected), apierrors.IsServiceUnavailable, "is not connected at the moment"},
		"Busy":         {tunnel.ErrBusy, apierrors.IsTooManyRequests, "too many connections"},
		"ShareUsed":    {fmt.Errorf("dial: %w", tunnel.ErrShareUsed), apierrors.IsTooManyRequests, "it may have 250 at a time"},
		"Other":        {errors.New("broken"), apierrors.IsServiceUnavailable, "broken"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := unreachable("web", tc.err); !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("unreachable = %v, want one with %q", err, tc.want)
			}
		})
	}
	if err := unreachable("web", nil); err != nil {
		t.Errorf("without an error: %v", err)
	}
}

func TestStatusChecker(t *testing.T) {
	answer := func(code int, body string) *http.Response {
		return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(strings.NewReader(body))}
	}
	if err := (statusChecker{}).Check(answer(200, "a log")); err != nil {
		t.Errorf("a log is an error: %v", err)
	}
	err := (statusChecker{}).Check(answer(400, `{"kind":"Status","status":"Failure","reason":"BadRequest","code":400,"message":"container none is not valid"}`))
	if !apierrors.IsBadRequest(err) || err.Error() != "container none is not valid" {
		t.Errorf("a Status becomes %v", err)
	}
	err = (statusChecker{}).Check(answer(502, "proxy"))
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "502: proxy") {
		t.Errorf("something else becomes %v", err)
	}
}
