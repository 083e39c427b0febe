package v1alpha1

// DrainResult is what a drain would do with a namespace.
type DrainResult string

const (
	// DrainMoves means that the namespace would go elsewhere, or that nothing runs in it
	// or it is leaving already, so that it would not be in the way.
	DrainMoves DrainResult = "Moves"
	// DrainEnds means that nothing can take over and that it would be removed here all
	// the same, because the drain is forced.
	DrainEnds DrainResult = "Ends"
	// DrainHeld means that there may be a place, but that it holds what must not be moved.
	DrainHeld DrainResult = "Held"
	// DrainIsBlocked means that nothing can take over.
	DrainIsBlocked DrainResult = "Blocked"
)

// DrainPreview says what a drain of a SyncTarget, begun now, would do with one namespace
// there. The server lists them at /services/drain/<cluster>/<name>; nothing is stored.
//
// +kubebuilder:object:generate=false
type DrainPreview struct {
	// Workspace is the tenant's workspace path.
	Workspace string      `json:"workspace"`
	Namespace string      `json:"namespace"`
	Result    DrainResult `json:"result"`
	// To is where it would go; nil when it goes nowhere.
	To *DrainDestination `json:"to,omitempty"`
	// Message says in words why.
	Message string `json:"message,omitempty"`
}

// DrainDestination is a place that a namespace would move to.
//
// +kubebuilder:object:generate=false
type DrainDestination struct {
	Location string `json:"location"`
	// Target is the SyncTarget's name, or its key where it stands in another workspace.
	Target string `json:"target"`
}

// Stays reports whether the namespace would be in the way of the drain.
func (p DrainPreview) Stays() bool { return p.Result == DrainHeld || p.Result == DrainIsBlocked }
