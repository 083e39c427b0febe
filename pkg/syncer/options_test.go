package syncer

import (
	"strings"
	"testing"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

func TestOptions(t *testing.T) {
	full := Options{PodSecurity: NewOptions().PodSecurity, FromKubeconfig: "f", SyncTargetName: "n", SyncTargetUID: "u", SyncTargetCluster: "compute"}
	cases := map[string]struct {
		change        func(*Options)
		wantErr       string
		wantInstance  string
		wantNamespace string
	}{
		"Defaults": {
			change:        func(*Options) {},
			wantInstance:  names.InstanceID("compute", "u"),
			wantNamespace: "kcp-syncer-" + names.InstanceID("compute", "u"),
		},
		"Instance":     {change: func(o *Options) { o.InstanceID = "i" }, wantInstance: "i", wantNamespace: "kcp-syncer-i"},
		"Namespace":    {change: func(o *Options) { o.InstanceID, o.Namespace = "i", "x" }, wantInstance: "i", wantNamespace: "x"},
		"NoKubeconfig": {change: func(o *Options) { o.FromKubeconfig = "" }, wantErr: "--from-kubeconfig is required"},
		"NoName":       {change: func(o *Options) { o.SyncTargetName = "" }, wantErr: "--sync-target-name is required"},
		"NoUID":        {change: func(o *Options) { o.SyncTargetUID = "" }, wantErr: "--sync-target-uid is required"},
		"NoCluster":    {change: func(o *Options) { o.SyncTargetCluster = "" }, wantErr: "--sync-target-cluster is required"},
		"BadStandard":  {change: func(o *Options) { o.PodSecurity = "lax" }, wantErr: `--pod-security "lax"`},
		"BadCluster":   {change: func(o *Options) { o.SyncTargetCluster = "root:a" }, wantErr: `"root:a"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := full
			tc.change(&o)
			c := o.Complete()
			err := c.Validate()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("Validate() = %v, want an error with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.InstanceID != tc.wantInstance || c.Namespace != tc.wantNamespace {
				t.Errorf("instance %q, namespace %q, want %q, %q", c.InstanceID, c.Namespace, tc.wantInstance, tc.wantNamespace)
			}
		})
	}
}
