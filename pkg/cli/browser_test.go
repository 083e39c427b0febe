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
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	client := &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
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
	values.Set("username", user)
	values.Set("password", password)
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

func get(client *http.Client, page string) (string, error) {
	resp, err := client.Get(page)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}
