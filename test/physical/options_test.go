package physical

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOptions(t *testing.T) {
	valid := Options{Dir: "/tmp/f", BinDir: "/tmp/bin", Runtime: "runc"}
	with := func(change func(*Options)) Options {
		o := valid
		change(&o)
		return o
	}
	cases := map[string]struct {
		options Options
		wantErr string
	}{
		"Valid":            {options: valid},
		"NoDir":            {options: with(func(o *Options) { o.Dir = "" }), wantErr: "required"},
		"NoBinDir":         {options: with(func(o *Options) { o.BinDir = "" }), wantErr: "required"},
		"LongDir":          {options: with(func(o *Options) { o.Dir = "/tmp/" + strings.Repeat("x", 90) }), wantErr: "too long for a socket"},
		"DirWithComma":     {options: with(func(o *Options) { o.Dir = "/tmp/a,b" }), wantErr: "mount options"},
		"ClusterTwice":     {options: with(func(o *Options) { o.Clusters = []string{"a", "b", "a"} }), wantErr: `"a" is listed twice`},
		"ClusterWithSlash": {options: with(func(o *Options) { o.Clusters = []string{"../a"} }), wantErr: `"../a" is not a name for a cluster`},
		"NetnsWithSlash":   {options: with(func(o *Options) { o.Netns = "a/b" }), wantErr: `"a/b" is not a name for a network namespace`},
		"Runtime":          {options: with(func(o *Options) { o.Runtime = "youki" }), wantErr: `"youki"`},
		"TooManyClusters":  {options: with(func(o *Options) { o.Clusters = make([]string, 51) }), wantErr: "51 clusters are too many"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.options.complete()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"us-east1", "us-west1"}, got.Clusters); diff != "" {
				t.Errorf("default clusters (-want +got):\n%s", diff)
			}
			if got.Netns != DefaultNetns || got.Timeout <= 0 || got.Log == nil {
				t.Errorf("defaults are missing: %+v", got)
			}
		})
	}
}

// TestAddressPlan checks that no two clusters get in each other's way, and that
// EndpointSlices accept the addresses of pods.
func TestAddressPlan(t *testing.T) {
	names := make([]string, maxClusters)
	for i := range names {
		names[i] = "c" + strings.Repeat("x", i%3) + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	o, err := Options{Dir: "/tmp/f", BinDir: "/tmp/bin", Runtime: "runc", Clusters: names}.complete()
	if err != nil {
		t.Fatal(err)
	}
	prefixes := []netip.Prefix{}
	strs := map[string]bool{}
	for _, c := range newFixture(o).Clusters() {
		for _, s := range []string{c.Address() + "/32", c.PodCIDR(), c.serviceCIDR()} {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				t.Fatalf("cluster number %d: %v", c.number, err)
			}
			if p.Addr().IsLoopback() || !p.Addr().IsPrivate() {
				t.Errorf("%s is not a private address", p)
			}
			for _, other := range prefixes {
				if p.Overlaps(other) {
					t.Errorf("cluster number %d: %s overlaps with %s", c.number, p, other)
				}
			}
			prefixes = append(prefixes, p)
		}
		for _, s := range []string{c.bridge(), c.NodeName(), c.Server()} {
			if strs[s] {
				t.Errorf("%q is used twice", s)
			}
			strs[s] = true
		}
		if len(c.bridge()) > 15 {
			t.Errorf("%q is too long for a network device", c.bridge())
		}
	}
}
