// Command demoapp is the application the demo and the end-to-end test deploy. It
// answers HTTP and WebSocket, says who answered and with which configuration,
// and ends the way a well-behaved server does.
//
// Environment:
//
//	DEMO_VERSION   the version it reports; part of the image
//	GREETING       from a ConfigMap; else the file CONFIG_DIR/greeting
//	TOKEN          from a Secret; else the file SECRET_DIR/token
//	CONFIG_DIR     default /etc/demo/config
//	SECRET_DIR     default /etc/demo/secret
//	LISTEN         default :8080
//	DRAIN_SECONDS  default 5
//
// With arguments it is a small tool for kubectl exec: "print WORDS", "cat" (standard
// input to standard output), "exit" (with code 3).
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// shutdownTimeout is for requests in flight after the drain time. Together they
// stay below the 30 seconds a pod has by default.
const shutdownTimeout = 20 * time.Second

func main() {
	f := run
	if len(os.Args) > 1 {
		f = func() error { return command(os.Args[1:], os.Stdin, os.Stdout) }
	}
	if err := f(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	drain, err := strconv.Atoi(env("DRAIN_SECONDS", "5"))
	if err != nil || drain < 0 {
		return fmt.Errorf("DRAIN_SECONDS is not a number of seconds: %q", os.Getenv("DRAIN_SECONDS"))
	}
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("cannot get host name: %w", err)
	}
	a := newApp(hostname)
	server := &http.Server{Addr: env("LISTEN", ":8080"), Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second}

	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("version %s listens on %s", a.version, server.Addr)
	select {
	case err := <-failed:
		return fmt.Errorf("cannot serve: %w", err)
	case <-ctx.Done():
	}
	// From here on not ready, but serving, until whoever sends requests has
	// noticed; then what is in flight ends.
	log.Printf("asked to stop, serving %d s more", drain)
	a.drain()
	time.Sleep(time.Duration(drain) * time.Second)
	shutdown, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := a.shutdown(shutdown, server); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("requests were cut off: %w", err)
	}
	log.Print("stopped")
	return nil
}

func env(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}
