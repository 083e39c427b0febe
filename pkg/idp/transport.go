package idp

import (
	"bytes"
	"io"
	"net/http"
)

// Transport serves requests to the issuer in this process, without a connection. The
// server's authenticator uses it to read the provider's metadata and keys, so that it
// neither waits for the listener nor has to trust its certificate.
func (p *Provider) Transport() http.RoundTripper { return inProcess{p.handler} }

type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	out := &bufferedResponse{header: http.Header{}}
	t.handler.ServeHTTP(out, in)
	if out.status == 0 {
		out.status = http.StatusOK
	}
	return &http.Response{
		Status:        http.StatusText(out.status),
		StatusCode:    out.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        out.header,
		Body:          io.NopCloser(&out.body),
		ContentLength: int64(out.body.Len()),
		Request:       r,
	}, nil
}

// bufferedResponse collects an answer in memory; the provider's are small.
type bufferedResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *bufferedResponse) Header() http.Header { return b.header }

func (b *bufferedResponse) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

func (b *bufferedResponse) Write(data []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return b.body.Write(data)
}
