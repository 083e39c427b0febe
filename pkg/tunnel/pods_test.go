package tunnel

import (
	"net/url"
	"testing"
)

func TestPodURL(t *testing.T) {
	got := PodURL("east", "c1", "shop", "web-1", "exec", url.Values{"command": {"a b", "c"}}).String()
	if want := "http://east/clusters/c1/namespaces/shop/pods/web-1/exec?command=a+b&command=c"; got != want {
		t.Errorf("PodURL = %s, want %s", got, want)
	}
}
