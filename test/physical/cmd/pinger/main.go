// Command pinger asks a URL again and again, every 100 ms whatever the answers
// take, and counts. It proves that something stays available: it ends, on
// SIGTERM or when a file appears, with code 1 if a single request failed.
//
//	pinger -url http://demo.example.com/hello -resolve 127.0.0.1:8080 -out ping.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

type options struct {
	url      string
	host     string
	resolve  string
	interval time.Duration
	timeout  time.Duration
	out      string
	stopFile string
	expect   string
	insecure bool
	reuse    bool
	socket   bool
}

func main() { os.Exit(exitCode()) }

// exitCode runs the command. It is apart from main so that deferred calls run.
func exitCode() int {
	o := options{}
	flag.StringVar(&o.url, "url", "", "what to ask, http, https, ws or wss; with ws one connection echoes messages and every loss of it is a failure")
	flag.StringVar(&o.host, "host", "", "Host header, if not the URL's")
	flag.StringVar(&o.resolve, "resolve", "", "address:port to connect to, instead of the URL's")
	flag.DurationVar(&o.interval, "interval", 100*time.Millisecond, "time from one request to the next")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Second, "time each request may take")
	flag.StringVar(&o.out, "out", "-", "file for the summary, one line of JSON, rewritten each second; - is standard output, at the end only")
	flag.StringVar(&o.stopFile, "stop-file", "", "end when this file exists")
	flag.StringVar(&o.expect, "expect", "", "text an answer has to contain, else it is a failure")
	flag.BoolVar(&o.insecure, "insecure", false, "accept any certificate")
	flag.BoolVar(&o.reuse, "reuse", false, "keep connections between requests")
	flag.Parse()
	o.socket = strings.HasPrefix(o.url, "ws://") || strings.HasPrefix(o.url, "wss://")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err := run(ctx, o)
	if errors.Is(err, errFailures) {
		return 1
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 2
	}
	return 0
}
