package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"k8s.io/klog/v2"
)

// serviceAddress is where pods expect the API server: port 443 of the first
// address of the service range.
func (o *Options) serviceAddress() (string, error) {
	prefix, err := netip.ParsePrefix(o.ServiceCIDR)
	if err != nil {
		return "", fmt.Errorf("--service-cidr %q is not a range of addresses: %w", o.ServiceCIDR, err)
	}
	return net.JoinHostPort(prefix.Masked().Addr().Next().String(), "443"), nil
}

// runForwarder stands in for kube-proxy for the one Service that pods cannot do
// without, the API server's. The machine has its address.
func runForwarder(ctx context.Context, o *Options) error {
	address, err := o.serviceAddress()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on the address of the kubernetes Service: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	target := net.JoinHostPort(o.Address, strconv.Itoa(o.Port))
	for {
		conn, err := listener.Accept()
		if err != nil {
			return ended(ctx, "forwarder", err)
		}
		go func() {
			if err := forward(ctx, conn, target); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(2).Info("Connection to the kubernetes Service ended", "client", conn.RemoteAddr(), "reason", err.Error())
			}
		}()
	}
}

// forward copies bytes both ways until both sides have ended, or ctx is done.
func forward(ctx context.Context, client net.Conn, target string) error {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	errs := [2]error{}
	copies := sync.WaitGroup{}
	copies.Go(func() { errs[0] = copyHalf(server, client) })
	copies.Go(func() { errs[1] = copyHalf(client, server) })
	copies.Wait()
	return errors.Join(errs[:]...)
}

// copyHalf passes on the end of the stream, too.
func copyHalf(dst, src net.Conn) error {
	_, err := io.Copy(dst, src)
	if tcp, ok := dst.(*net.TCPConn); ok {
		err = errors.Join(err, tcp.CloseWrite())
	}
	return err
}
