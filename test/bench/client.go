package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// client speaks JSON to an API server as one identity, as cheaply as can be: the client
// shares the machine with what it measures.
type client struct {
	http *http.Client
	url  string
}

func newClient(cfg *rest.Config, url string) (*client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: transport}, url: url}, nil
}

// statusError is an answer that is none of 2xx.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// send sends a request and returns the open answer.
func (c *client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // it only explains
		return nil, &statusError{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, resp.Status, text)}
	}
	return resp, nil
}

// raw sends a request and returns the whole answer.
func (c *client) raw(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (c *client) get(ctx context.Context, path string, out any) error {
	data, err := c.raw(ctx, http.MethodGet, path, "", nil)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// create posts obj; that it exists is no error.
func (c *client) create(ctx context.Context, path string, obj any) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	_, err = c.raw(ctx, http.MethodPost, path, "application/json", data)
	if isStatus(err, http.StatusConflict) {
		return nil
	}
	return err
}

func (c *client) mergePatch(ctx context.Context, path string, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = c.raw(ctx, http.MethodPatch, path, "application/merge-patch+json", data)
	return err
}

func (c *client) delete(ctx context.Context, path string) error {
	_, err := c.raw(ctx, http.MethodDelete, path, "", nil)
	return err
}

func isStatus(err error, code int) bool {
	status, ok := err.(*statusError) //nolint:errorlint // made here and never wrapped
	return ok && status.code == code
}

// timed runs f and returns how long it took.
func timed(f func() error) (time.Duration, error) {
	begin := time.Now()
	err := f()
	return time.Since(begin), err
}

// event is one event of a watch, as far as benchmarks look at objects.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// watch calls f for every event until ctx ends; an error of the stream goes to failed.
// It returns once the stream is open.
func (c *client) watch(ctx context.Context, path string, f func(event)) (failed <-chan error, err error) {
	resp, err := c.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	errs := make(chan error, 1)
	go func() {
		defer resp.Body.Close()
		decoder := json.NewDecoder(resp.Body)
		for {
			var e event
			if err := decoder.Decode(&e); err != nil {
				if ctx.Err() == nil {
					errs <- fmt.Errorf("watch %s: %w", path, err)
				}
				return
			}
			f(e)
		}
	}()
	return errs, nil
}

// object is what benchmarks read of objects.
type object struct {
	APIVersion string   `json:"apiVersion,omitempty"`
	Kind       string   `json:"kind,omitempty"`
	Metadata   metadata `json:"metadata"`
	Spec       struct {
		Cluster string `json:"cluster"`
		URL     string `json:"URL"`
		Target  string `json:"target"`
	} `json:"spec,omitzero"`
	Status struct {
		Phase      string `json:"phase"`
		Key        string `json:"key"`
		Conditions []struct {
			Type, Status, Message string
		} `json:"conditions"`
	} `json:"status,omitzero"`
}

type metadata struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

type list struct {
	Metadata metadata `json:"metadata"`
	Items    []object `json:"items"`
}

func (o object) condition(typ string) (status, message string) {
	for _, c := range o.Status.Conditions {
		if c.Type == typ {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// manifest is an object to create.
type manifest map[string]any

func named(name string) manifest { return manifest{"name": name} }

func configMap(name string) manifest {
	return manifest{"apiVersion": "v1", "kind": "ConfigMap", "metadata": named(name), "data": manifest{"key": "a value of some length, as they are"}}
}
