package cli_test

import (
	"crypto/tls"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
)

var (
	inputRE = regexp.MustCompile(`<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"`)
	formRE  = regexp.MustCompile(`<form method="post" action="([^"]+)"`)
	pageRE  = regexp.MustCompile(`(?m)^    (https://\S+/device)$`)
	codeRE  = regexp.MustCompile(`(?m)^    code: (\S+)$`)
)

// browserMain is a browser and a person in front of it: "browser USER URL" fills the
// provider's form in. "browser fail URL" cannot start; "browser forge URL" sends the
// command line answers of other logins first. What it prints would spoil a credential.
func browserMain() {
	fmt.Println("[1234:5678:ERROR:gpu_init.cc] a browser is noisy")
	user, page := os.Args[1], os.Args[2]
	if user == "fail" {
		os.Exit(3)
	}
	if err := signIn(user, page); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

func signIn(user, page string) error {
	client, err := newBrowser()
	if err != nil {
		return err
	}
	if user == "forge" {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		body, err := get(client, u.Query().Get("redirect_uri")+"?code=stolen&state=other")
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "forged:", body)
		user = "alice"
	}
	if user == "refuse" {
		u, err := url.Parse(page)
		if err != nil {
			return err
		}
		_, err = get(client, u.Query().Get("redirect_uri")+"?error=access_denied&error_description=not+today&state="+url.QueryEscape(u.Query().Get("state")))
		return err
	}
	return submit(client, page, url.Values{"username": {user}, "password": {password}})
}

// submit opens a page and sends its form with the given fields changed.
func submit(client *http.Client, page string, fields url.Values) error {
	body, err := get(client, page)
	if err != nil {
		return err
	}
	form := formRE.FindStringSubmatch(body)
	if form == nil {
		return fmt.Errorf("no form in %q", body)
	}
	values := url.Values{}
	for _, m := range inputRE.FindAllStringSubmatch(body, -1) {
		values.Set(m[1], html.UnescapeString(m[2]))
	}
	for name := range fields {
		values.Set(name, fields.Get(name))
	}
	u, err := url.Parse(page)
	if err != nil {
		return err
	}
	resp, err := client.PostForm(u.Scheme+"://"+u.Host+form[1], values)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, data)
	}
	return err
}

// enterCode is a person with another device, who reads on the terminal where to go and
// what to enter there. action is "allow" or "deny".
func enterCode(user, action, terminal string) error {
	page := pageRE.FindStringSubmatch(terminal)
	code := codeRE.FindStringSubmatch(terminal)
	if page == nil || code == nil {
		return fmt.Errorf("no page or no code in %q", terminal)
	}
	client, err := newBrowser()
	if err != nil {
		return err
	}
	return submit(client, page[1], url.Values{"user_code": {code[1]}, "username": {user}, "password": {password}, "action": {action}})
}

func newBrowser() (*http.Client, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, nil
}

func get(client *http.Client, page string) (string, error) {
	resp, err := client.Get(page)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}
