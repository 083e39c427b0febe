package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// deadPeerTimeout is how long sent data may stay unacknowledged. Without it a request on
// a connection to a machine that lost power would wait for the response timeout.
const deadPeerTimeout = 5000 // milliseconds

func controlSocket(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, deadPeerTimeout)
	}); cerr != nil {
		return cerr
	}
	return err
}
