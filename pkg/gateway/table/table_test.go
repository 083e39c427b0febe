package table_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	schedulingv1alpha1 "github.com/13eedeaf/kcp/pkg/apis/scheduling/v1alpha1"
	"github.com/13eedeaf/kcp/pkg/gateway/table"
	"github.com/13eedeaf/kcp/pkg/logicalcluster"
)

var update = flag.Bool("update", false, "write the golden files")

// readInputs reads a file of API objects and sorts them into namespaces.
func readInputs(t *testing.T, path string) map[table.NamespaceKey]*table.Inputs {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[table.NamespaceKey]*table.Inputs{}
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Fatal(err)
		}
		key := table.NamespaceKey{Cluster: logicalcluster.From(&meta), Namespace: meta.Namespace}
		in := out[key]
		if in == nil {
			in = &table.Inputs{}
			out[key] = in
		}
		switch meta.Kind {
		case "Ingress":
			ingress := decode[networkingv1.Ingress](t, doc)
			in.Ingresses = append(in.Ingresses, ingress)
			in.Claims = append(in.Claims, claimAll(ingress))
		case "Service":
			in.Services = append(in.Services, decode[corev1.Service](t, doc))
		case "Assignment":
			in.Assignments = append(in.Assignments, decode[schedulingv1alpha1.Assignment](t, doc))
		case "EndpointSlice":
			in.Slices = append(in.Slices, decode[discoveryv1.EndpointSlice](t, doc))
		default:
			t.Fatalf("%s: unknown kind %q", path, meta.Kind)
		}
	}
	return out
}

func decode[T any](t *testing.T, doc []byte) *T {
	t.Helper()
	var out T
	if err := yaml.UnmarshalStrict(doc, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func build(inputs map[table.NamespaceKey]*table.Inputs) map[table.NamespaceKey]*table.Namespace {
	out := map[table.NamespaceKey]*table.Namespace{}
	for key, in := range inputs {
		out[key] = table.BuildNamespace(key, *in)
	}
	return out
}

func shuffle[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			inputs := readInputs(t, file)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden.json"
			// The order in which objects arrive must not matter.
			for range 10 {
				got, _ := table.Update(nil, build(inputs), time.UnixMilli(1000))
				data, err := json.MarshalIndent(got, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				data = append(data, '\n')
				if *update {
					if err := os.WriteFile(golden, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), string(data)); diff != "" {
					t.Fatalf("table of %s (-want +got):\n%s", file, diff)
				}
				for _, in := range inputs {
					shuffle(in.Ingresses)
					shuffle(in.Services)
					shuffle(in.Assignments)
					shuffle(in.Slices)
					shuffle(in.Claims)
				}
			}
		})
	}
}
