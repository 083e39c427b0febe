package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// plain reports whether a request can be forwarded as it is: it has no body, and nothing
// in it is between the client and the gateway alone. That is most of them, and they need
// not pass through httputil.ReverseProxy and http.Transport, which are made for all.
func plain(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 || r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return false
	}
	for _, name := range [...]string{"Upgrade", "Expect", "Te", "Trailer"} {
		if r.Header[name] != nil {
			return false
		}
	}
	for _, token := range r.Header["Connection"] {
		if !strings.EqualFold(token, "keep-alive") && !strings.EqualFold(token, "close") {
			return false
		}
	}
	for i := range len(r.Host) {
		if c := r.Host[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == ':') {
			return false
		}
	}
	return true
}

// appendHead appends the head of the request to an endpoint: as it came, but for what was
// meant for the gateway, and with who sent it.
func appendHead(b []byte, in *http.Request) []byte {
	b = append(append(append(b, in.Method...), ' '), in.URL.RequestURI()...)
	b = appendHeader(append(b, " HTTP/1.1\r\n"...), "Host", in.Host)
	for name, values := range in.Header {
		switch name {
		case "Host", "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
			"Transfer-Encoding", "Content-Length",
			"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
			continue
		}
		for _, value := range values {
			b = appendHeader(b, name, value)
		}
	}
	if client, _, err := net.SplitHostPort(in.RemoteAddr); err == nil {
		b = appendHeader(b, "X-Forwarded-For", client)
	}
	b = appendHeader(b, "X-Forwarded-Host", in.Host)
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	return append(appendHeader(b, "X-Forwarded-Proto", proto), "\r\n"...)
}

// appendHeader relies on the server, which refuses names and values that are malformed.
func appendHeader(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// forward serves a plain request.
func (p *Proxy) forward(w http.ResponseWriter, in *http.Request, f *flow) {
	var resp *http.Response
	var c *conn
	tell := func(info *http.Response) {
		copyHeader(w.Header(), info.Header)
		w.WriteHeader(info.StatusCode)
		clear(w.Header())
	}
	err := p.attempt(f, in, &requestBody{}, func(e *endpoint) (err error) {
		resp, c, err = p.exchange(in, e, tell) //nolint:bodyclose // it ends with the connection, in forward
		return err
	})
	if err != nil {
		p.fail(w, in, err)
		return
	}
	err = p.answer(w, resp, c)
	if err != nil || resp.Close || c.reader.Buffered() > 0 || !c.settle() {
		// What is on it belongs to no other request.
		c.drop()
	} else {
		f.held.endpoint.idle.put(c)
	}
	if err != nil {
		// The head is sent, so all that can be done is to let the client see that the
		// answer is not whole. The server knows this value and does not log it.
		panic(http.ErrAbortHandler)
	}
}

func copyHeader(to, from http.Header) {
	for name, values := range from {
		if to[name] == nil {
			to[name] = values
			continue
		}
		to[name] = append(to[name], values...)
	}
}

// answer passes an answer on to the client.
func (p *Proxy) answer(w http.ResponseWriter, resp *http.Response, c *conn) error {
	if err := c.unbounded(); err != nil {
		return err
	}
	buf := p.buffers.borrow()
	defer p.buffers.pool.Put(buf)
	removeHopByHop(resp.Header)
	copyHeader(w.Header(), resp.Header)
	announced := len(resp.Trailer)
	for name := range resp.Trailer {
		w.Header().Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	flush := resp.ContentLength < 0 || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if flush && c.reader.Buffered() == 0 {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
	}
	if err := copyBody(w, resp.Body, *buf, flush); err != nil {
		return err
	}
	if len(resp.Trailer) > 0 {
		passTrailer(w, resp.Trailer, announced)
	}
	return nil
}

func copyBody(w http.ResponseWriter, body io.Reader, buf []byte, flush bool) error {
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if flush {
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// passTrailer does so also where the answer came with more than it had announced.
func passTrailer(w http.ResponseWriter, trailer http.Header, announced int) {
	// An error here is the client's absence, which the server sees as well.
	_ = http.NewResponseController(w).Flush()
	prefix := ""
	if len(trailer) != announced {
		prefix = http.TrailerPrefix
	}
	for name, values := range trailer {
		for _, value := range values {
			w.Header().Add(prefix+name, value)
		}
	}
}

// removeHopByHop removes what an answer says to the gateway alone.
func removeHopByHop(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			if name = textproto.TrimString(name); httpguts.ValidHeaderFieldName(name) {
				h.Del(name)
			}
		}
	}
	for _, name := range [...]string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	} {
		delete(h, name)
	}
}
