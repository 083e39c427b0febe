package idp

import (
	"crypto/hmac"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/klog/v2"
)

//go:embed web
var web embed.FS

var templates = template.Must(template.ParseFS(web, "web/*.html"))

const (
	cookieName = "kcp-idp"
	// Forms are small; so is everything that the protocol sends. What a sign-in keeps in
	// memory until it ends is bounded by these and by maxPending.
	maxBody  = 8 << 10
	maxQuery = 4 << 10
)

// Messages say nothing about which part of the credentials was wrong.
const (
	wrongCredentials = "The user name or the password is wrong."
	tooManyAttempts  = "Too many attempts. Wait a minute and try again."
	wrongCode        = "The code is wrong, has expired or was already used. Check what the command line shows."
	staleForm        = "This form had expired. Please try again."
)

// pages are what people see; everything else is the library's.
type pages struct {
	storage *storage
	path    string
	csrfKey []byte
	limit   *limiter
}

// form is the data of both forms.
type form struct {
	Action   string // where the form posts to
	Style    string
	CSRF     string
	ID       string // sign-in only
	UserCode string // device only
	Username string
	Error    string
}

func (p *pages) routes(library http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", p.showLogin)
	mux.HandleFunc("POST /login", p.postLogin)
	mux.HandleFunc("GET /device", p.showDevice)
	mux.HandleFunc("POST /device", p.postDevice)
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		http.ServeFileFS(w, r, web, "web/style.css")
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		library.ServeHTTP(w, r.WithContext(withBrowser(r.Context(), p.browser(w, r))))
	})
	mux.HandleFunc("/authorize/callback", func(w http.ResponseWriter, r *http.Request) {
		// Without this check whoever started a sign-in and sent its link to someone else
		// could fetch the code here, once they have typed their password.
		if _, ok := p.ownRequest(r, r.URL.Query().Get("id")); !ok {
			p.notice(w, http.StatusForbidden, "This sign-in has expired or was started in another browser.")
			return
		}
		library.ServeHTTP(w, r)
	})
	mux.Handle("/", library)
	return http.StripPrefix(p.path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if len(r.URL.RawQuery) > maxQuery {
			p.notice(w, http.StatusRequestURITooLong, "This request is too long.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	}))
}

// secure sets the headers of every answer. Browsers apply form-action to the redirects
// that follow a form, and the last one goes to the command line's loopback listener.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self' http://127.0.0.1:*; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// browser returns the value of the browser's cookie, giving it one first if need be.
func (p *pages) browser(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(cookieName); err == nil && c.Value != "" {
		return c.Value
	}
	c := &http.Cookie{
		Name:     cookieName,
		Value:    randomToken(),
		Path:     p.path,
		Secure:   true,
		HttpOnly: true,
		// Lax: the command line opens the first page, which is a navigation from outside.
		SameSite: http.SameSiteLaxMode,
	}
	http.SetCookie(w, c)
	return c.Value
}

// ownRequest returns the sign-in with this id if this browser started it.
func (p *pages) ownRequest(r *http.Request, id string) (authRequest, bool) {
	req, ok := p.storage.requests.get(id)
	c, err := r.Cookie(cookieName)
	if !ok || err != nil || c.Value == "" || !hmac.Equal([]byte(c.Value), []byte(req.browser)) {
		return authRequest{}, false
	}
	return req, true
}

// csrf binds a form to the browser that it was shown in.
func (p *pages) csrf(browser string) string {
	mac := hmac.New(sha256.New, p.csrfKey)
	mac.Write([]byte(browser))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (p *pages) checkCSRF(r *http.Request) bool {
	c, err := r.Cookie(cookieName)
	return err == nil && c.Value != "" && hmac.Equal([]byte(p.csrf(c.Value)), []byte(r.PostFormValue("csrf")))
}

func (p *pages) showLogin(w http.ResponseWriter, r *http.Request) {
	req, ok := p.ownRequest(r, r.URL.Query().Get("id"))
	if !ok {
		p.notice(w, http.StatusBadRequest, "This sign-in has expired or was started in another browser. Go back to the command line and start it again.")
		return
	}
	p.render(w, r, http.StatusOK, "login.html", form{ID: req.id, Username: req.request.LoginHint})
}

func (p *pages) postLogin(w http.ResponseWriter, r *http.Request) {
	req, ok := p.ownRequest(r, r.PostFormValue("id"))
	if !ok {
		p.notice(w, http.StatusBadRequest, "This sign-in has expired or was started in another browser. Go back to the command line and start it again.")
		return
	}
	f := form{ID: req.id, Username: username(r)}
	u, status, message := p.authenticate(r)
	if u == nil {
		f.Error = message
		p.render(w, r, status, "login.html", f)
		return
	}
	if !p.storage.finish(req.id, *u) {
		p.notice(w, http.StatusBadRequest, "This sign-in has expired. Go back to the command line and start it again.")
		return
	}
	http.Redirect(w, r, p.path+"/authorize/callback?id="+url.QueryEscape(req.id), http.StatusSeeOther)
}

func (p *pages) showDevice(w http.ResponseWriter, r *http.Request) {
	p.render(w, r, http.StatusOK, "device.html", form{UserCode: r.URL.Query().Get("user_code")})
}

// postDevice asks for the password first, so that codes can be tried only by users.
func (p *pages) postDevice(w http.ResponseWriter, r *http.Request) {
	f := form{UserCode: r.PostFormValue("user_code"), Username: username(r)}
	u, status, message := p.authenticate(r)
	if u == nil {
		f.Error = message
		p.render(w, r, status, "device.html", f)
		return
	}
	decider, done := u, "You are signed in on the other device. You can close this page."
	if r.PostFormValue("action") == "deny" {
		decider, done = nil, "The request was refused. You can close this page."
	}
	if !p.storage.decideDevice(f.UserCode, decider) {
		f.Error = wrongCode
		p.render(w, r, http.StatusBadRequest, "device.html", f)
		return
	}
	p.notice(w, http.StatusOK, done)
}

func username(r *http.Request) string {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("username")))
}

// authenticate checks a posted form. It returns the user, or the answer's status and
// message.
func (p *pages) authenticate(r *http.Request) (*user, int, string) {
	if !p.checkCSRF(r) {
		return nil, http.StatusForbidden, staleForm
	}
	name := username(r)
	if !p.limit.take(name) {
		return nil, http.StatusTooManyRequests, tooManyAttempts
	}
	u, ok := p.storage.users.authenticate(name, r.PostFormValue("password"))
	if !ok {
		return nil, http.StatusUnauthorized, wrongCredentials
	}
	p.limit.reset(name)
	return &u, http.StatusOK, ""
}

func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, name string, f form) {
	f.Action = p.path + "/" + strings.TrimSuffix(name, ".html")
	f.Style = p.path + "/style.css"
	f.CSRF = p.csrf(p.browser(w, r))
	p.execute(w, status, name, f)
}

// notice is a page that only says something.
func (p *pages) notice(w http.ResponseWriter, status int, message string) {
	p.execute(w, status, "notice.html", struct{ Style, Message string }{p.path + "/style.css", message})
}

func (p *pages) execute(w http.ResponseWriter, status int, name string, data any) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	if err := templates.ExecuteTemplate(w, name, data); err != nil {
		klog.ErrorS(err, "Page not written", "page", name)
	}
}
