package syncer

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/13eedeaf/kcp/pkg/version"
)

// skewError says why this syncer cannot work with the server.
type skewError struct{ message string }

func (e *skewError) Error() string { return e.message }

// introducing tells the server what this syncer is, and reads what the server is.
type introducing struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (i introducing) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	version.Self().Tell(req.Header)
	resp, err := i.next.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 2 {
		// An error need not be the server's own word, and an upgrade has no header.
		return resp, err
	}
	server, err := version.PeerOf(resp.Header)
	if err == nil {
		if message := version.RefuseServer(server); message != "" {
			err = &skewError{message}
		}
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// skewOf returns in one error why server and syncer do not fit; nil when err is something
// else.
func skewOf(err error) error {
	var own *skewError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &own):
		return own
	case apierrors.HasStatusCause(err, version.SkewCause) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && errors.As(err, &status):
		return fmt.Errorf("the server refuses this syncer: %w", &skewError{status.Status().Message})
	default:
		return nil
	}
}
