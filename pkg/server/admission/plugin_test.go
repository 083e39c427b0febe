package admission

import (
	"io"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

func object(target string) runtime.Object {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns"}}
	if target != "" {
		obj.Labels = map[string]string{"workload.kcp.io/target": target}
	}
	return obj
}

func TestPlugin(t *testing.T) {
	var (
		podsV1      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		slicesV1    = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
		setsV1      = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
		configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		assignments = schema.GroupVersionResource{Group: "scheduling.kcp.io", Version: "v1alpha1", Resource: "assignments"}
		plain       = object("")
		mine        = object("t1")
		theirs      = object("t2")
	)
	const (
		create = admission.Create
		update = admission.Update
		remove = admission.Delete
	)
	cases := map[string]struct {
		user     user.Info
		mark     *Writer
		op       admission.Operation
		gvr      schema.GroupVersionResource
		sub      string
		old, obj runtime.Object
		wantErr  bool
	}{
		"tenant creates a pod":                              {user: tenant, op: create, gvr: podsV1, obj: plain},
		"tenant changes a pod":                              {user: tenant, op: update, gvr: podsV1, old: plain, obj: plain},
		"tenant deletes a pod":                              {user: tenant, op: remove, gvr: podsV1, old: plain},
		"tenant creates a mirrored pod":                     {user: tenant, op: create, gvr: podsV1, obj: mine, wantErr: true},
		"tenant labels a pod":                               {user: tenant, op: update, gvr: podsV1, old: plain, obj: mine, wantErr: true},
		"tenant takes the label away":                       {user: tenant, op: update, gvr: podsV1, old: mine, obj: plain, wantErr: true},
		"tenant changes the label":                          {user: tenant, op: update, gvr: podsV1, old: mine, obj: theirs, wantErr: true},
		"tenant changes a mirrored pod":                     {user: tenant, op: update, gvr: podsV1, old: mine, obj: mine, wantErr: true},
		"tenant changes a mirrored pod's status":            {user: tenant, op: update, gvr: podsV1, sub: "status", old: mine, obj: mine, wantErr: true},
		"tenant adds ephemeral containers to one":           {user: tenant, op: update, gvr: podsV1, sub: "ephemeralcontainers", old: mine, obj: mine, wantErr: true},
		"tenant deletes a mirrored pod":                     {user: tenant, op: remove, gvr: podsV1, old: mine},
		"tenant evicts a pod":                               {user: tenant, op: create, gvr: podsV1, sub: "eviction", obj: plain},
		"tenant binds a pod":                                {user: tenant, op: create, gvr: podsV1, sub: "binding", obj: plain, wantErr: true},
		"tenant creates an empty-labelled pod":              {user: tenant, op: create, gvr: podsV1, obj: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload.kcp.io/target": ""}}}, wantErr: true},
		"tenant creates a slice":                            {user: tenant, op: create, gvr: slicesV1, obj: plain},
		"tenant creates a mirrored slice":                   {user: tenant, op: create, gvr: slicesV1, obj: mine, wantErr: true},
		"tenant changes a mirrored slice":                   {user: tenant, op: update, gvr: slicesV1, old: mine, obj: mine, wantErr: true},
		"tenant deletes a mirrored slice":                   {user: tenant, op: remove, gvr: slicesV1, old: mine, wantErr: true},
		"tenant creates a replica set":                      {user: tenant, op: create, gvr: setsV1, obj: plain},
		"tenant creates a mirrored replica set":             {user: tenant, op: create, gvr: setsV1, obj: mine, wantErr: true},
		"tenant deletes a mirrored replica set":             {user: tenant, op: remove, gvr: setsV1, old: mine, wantErr: true},
		"tenant changes a mirrored replica set":             {user: tenant, op: update, gvr: setsV1, old: mine, obj: mine, wantErr: true},
		"syncer changes its own replica set":                {user: tenant, mark: new(Syncer("t1")), op: update, gvr: setsV1, old: mine, obj: mine},
		"tenant labels a config map":                        {user: tenant, op: create, gvr: configMaps, obj: mine},
		"tenant writes an assignment":                       {user: tenant, op: update, gvr: assignments, old: plain, obj: plain, wantErr: true},
		"admin changes a mirrored pod":                      {user: admin, op: update, gvr: podsV1, old: mine, obj: mine, wantErr: true},
		"who has become the loopback by impersonation":      {user: loopback, op: update, gvr: podsV1, old: mine, obj: mine, wantErr: true},
		"impersonated loopback writes an assignment":        {user: loopback, op: update, gvr: assignments, old: plain, obj: plain, wantErr: true},
		"server changes a mirrored pod":                     {user: loopback, mark: new(Server()), op: update, gvr: podsV1, old: mine, obj: mine},
		"server deletes a mirrored slice":                   {user: loopback, mark: new(Server()), op: remove, gvr: slicesV1, old: mine},
		"server binds a pod":                                {user: loopback, mark: new(Server()), op: create, gvr: podsV1, sub: "binding", obj: plain},
		"server writes an assignment":                       {user: loopback, mark: new(Server()), op: update, gvr: assignments, old: plain, obj: plain},
		"syncer creates its own":                            {user: tenant, mark: new(Syncer("t1")), op: create, gvr: podsV1, obj: mine},
		"syncer changes its own":                            {user: tenant, mark: new(Syncer("t1")), op: update, gvr: podsV1, old: mine, obj: mine},
		"syncer deletes its own":                            {user: tenant, mark: new(Syncer("t1")), op: remove, gvr: slicesV1, old: mine},
		"syncer creates another target's":                   {user: tenant, mark: new(Syncer("t1")), op: create, gvr: podsV1, obj: theirs, wantErr: true},
		"syncer takes over another target's":                {user: tenant, mark: new(Syncer("t1")), op: update, gvr: podsV1, old: theirs, obj: mine, wantErr: true},
		"syncer gives its own away":                         {user: tenant, mark: new(Syncer("t1")), op: update, gvr: podsV1, old: mine, obj: theirs, wantErr: true},
		"syncer deletes another target's":                   {user: tenant, mark: new(Syncer("t1")), op: remove, gvr: podsV1, old: theirs, wantErr: true},
		"syncer creates a tenant's pod":                     {user: tenant, mark: new(Syncer("t1")), op: create, gvr: podsV1, obj: plain, wantErr: true},
		"syncer takes over a tenant's pod":                  {user: tenant, mark: new(Syncer("t1")), op: update, gvr: podsV1, old: plain, obj: mine, wantErr: true},
		"syncer turns its own into a tenant's":              {user: tenant, mark: new(Syncer("t1")), op: update, gvr: podsV1, old: mine, obj: plain, wantErr: true},
		"syncer deletes a tenant's pod":                     {user: tenant, mark: new(Syncer("t1")), op: remove, gvr: podsV1, old: plain, wantErr: true},
		"syncer without a key matches no empty label":       {user: tenant, mark: new(Syncer("")), op: create, gvr: podsV1, obj: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"workload.kcp.io/target": ""}}}, wantErr: true},
		"gateway changes a mirrored slice":                  {user: tenant, mark: new(Gateway()), op: update, gvr: slicesV1, old: mine, obj: mine, wantErr: true},
		"gateway deletes a mirrored pod":                    {user: tenant, mark: new(Gateway()), op: remove, gvr: podsV1, old: mine, wantErr: true},
		"syncer's finalizer patch, checked before (marked)": {user: tenant, mark: new(Syncer("t1")), op: update, gvr: assignments, old: plain, obj: plain},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.mark != nil {
				ctx = WithSystemWriter(ctx, *tc.mark)
			}
			attrs := admission.NewAttributesRecord(tc.obj, tc.old, schema.GroupVersionKind{}, "ns", "x", tc.gvr, tc.sub, tc.op, nil, false, tc.user)
			err := NewPlugin().Validate(ctx, attrs, nil)
			if tc.wantErr && !apierrors.IsForbidden(err) {
				t.Errorf("err = %v, want Forbidden", err)
			}
			if !tc.wantErr && err != nil {
				t.Errorf("err = %v, want none", err)
			}
		})
	}
}

// TestPluginRegistered fails if the plugin cannot be made by name or misses one of the
// operations that write.
func TestPluginRegistered(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	chain, err := plugins.NewFromPlugins([]string{PluginName}, noConfig{}, admission.PluginInitializers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		if !chain.Handles(op) {
			t.Errorf("plugin does not handle %s", op)
		}
	}
	if chain.Handles(admission.Connect) {
		t.Error("plugin handles CONNECT, which writes nothing")
	}
}

type noConfig struct{}

func (noConfig) ConfigFor(string) (io.Reader, error) { return nil, nil }
