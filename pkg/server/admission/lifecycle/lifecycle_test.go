package lifecycle

import (
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

// phases are namespaces by cluster and name.
type phases map[logicalcluster.Key]core.NamespacePhase

func (p phases) read(ctx context.Context, name string, out runtime.Object) error {
	cluster, err := logicalcluster.FromContext(ctx)
	if err != nil {
		return err
	}
	phase, ok := p[logicalcluster.Key{Cluster: cluster, Name: name}]
	if !ok {
		return storage.NewKeyNotFoundError(name, 0)
	}
	out.(*core.Namespace).Status.Phase = phase
	return nil
}

// lagging is a cache that may be behind etcd.
type lagging struct {
	cache, etcd phases
	liveReads   int
}

func (l *lagging) Get(ctx context.Context, _, name string, out runtime.Object) error {
	return l.cache.read(ctx, name, out)
}

func (l *lagging) GetLive(ctx context.Context, _, name string, out runtime.Object) error {
	l.liveReads++
	return l.etcd.read(ctx, name, out)
}

func attributes(kind, namespace, name string, op admission.Operation) admission.Attributes {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: kind}
	return admission.NewAttributesRecord(nil, nil, gvk, namespace, name, schema.GroupVersionResource{Version: "v1", Resource: "things"}, "", op, nil, false, nil)
}

func TestCreationInNamespaces(t *testing.T) {
	here := logicalcluster.Key{Cluster: "one", Name: "shop"}
	there := logicalcluster.Key{Cluster: "two", Name: "shop"}
	cases := map[string]struct {
		cache, etcd phases
		// deleted was asked to go, age ago.
		deleted       logicalcluster.Key
		age           time.Duration
		kind          string
		wantCode      int32
		wantLiveReads int
	}{
		"there":                   {cache: phases{here: core.NamespaceActive}},
		"missing":                 {wantCode: http.StatusNotFound, wantLiveReads: 1},
		"of another cluster":      {cache: phases{there: core.NamespaceActive}, etcd: phases{there: core.NamespaceActive}, wantCode: http.StatusNotFound, wantLiveReads: 1},
		"just made":               {etcd: phases{here: core.NamespaceActive}, wantLiveReads: 1},
		"terminating":             {cache: phases{here: core.NamespaceTerminating}, etcd: phases{here: core.NamespaceTerminating}, wantCode: http.StatusForbidden, wantLiveReads: 1},
		"made anew":               {cache: phases{here: core.NamespaceTerminating}, etcd: phases{here: core.NamespaceActive}, wantLiveReads: 1},
		"deleted a moment ago":    {cache: phases{here: core.NamespaceActive}, etcd: phases{here: core.NamespaceTerminating}, deleted: here, wantCode: http.StatusForbidden, wantLiveReads: 1},
		"gone a moment ago":       {cache: phases{here: core.NamespaceActive}, deleted: here, wantCode: http.StatusNotFound, wantLiveReads: 1},
		"deletion was refused":    {cache: phases{here: core.NamespaceActive}, etcd: phases{here: core.NamespaceActive}, deleted: here, wantLiveReads: 1},
		"deleted elsewhere":       {cache: phases{here: core.NamespaceActive}, etcd: phases{here: core.NamespaceActive}, deleted: there},
		"deletion is long known":  {cache: phases{here: core.NamespaceActive}, etcd: phases{here: core.NamespaceActive}, deleted: here, age: distrust + time.Second},
		"the namespace itself":    {kind: "Namespace"},
		"a request of no cluster": {cache: phases{here: core.NamespaceActive}, wantCode: http.StatusInternalServerError},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Now())
			namespaces := &lagging{cache: tc.cache, etcd: tc.etcd}
			p := newPlugin(namespaces, clock)
			if tc.deleted.Name != "" {
				ctx := logicalcluster.WithCluster(t.Context(), tc.deleted.Cluster)
				if err := p.Validate(ctx, attributes("Namespace", tc.deleted.Name, tc.deleted.Name, admission.Delete), nil); err != nil {
					t.Fatalf("deletion of the namespace: %v", err)
				}
				clock.Step(tc.age)
			}
			ctx := logicalcluster.WithCluster(t.Context(), here.Cluster)
			if tc.wantCode == http.StatusInternalServerError {
				ctx = t.Context()
			}
			kind := tc.kind
			if kind == "" {
				kind = "ConfigMap"
			}
			err := p.Validate(ctx, attributes(kind, "shop", "x", admission.Create), nil)
			var got int32
			if status, ok := err.(apierrors.APIStatus); ok {
				got = status.Status().Code
			} else if err != nil {
				t.Fatalf("an error without status: %v", err)
			}
			if got != tc.wantCode || namespaces.liveReads != tc.wantLiveReads {
				t.Errorf("code %d after %d reads of etcd, want %d after %d: %v", got, namespaces.liveReads, tc.wantCode, tc.wantLiveReads, err)
			}
		})
	}
}

func TestDeletionOfOtherThings(t *testing.T) {
	p := newPlugin(&lagging{}, testingclock.NewFakeClock(time.Now()))
	ctx := logicalcluster.WithCluster(t.Context(), "one")
	if !p.Handles(admission.Delete) || p.Handles(admission.Update) {
		t.Error("want creations and deletions, and nothing else")
	}
	if err := p.Validate(ctx, attributes("ConfigMap", "shop", "shop", admission.Delete), nil); err != nil {
		t.Error(err)
	}
	if n := len(p.deleted.Keys()); n != 0 {
		t.Errorf("%d deletions of namespaces are remembered, want none", n)
	}
}
