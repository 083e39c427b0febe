package v1alpha1

// IngressClass is the class of the Ingresses that gateways serve, beside those of no
// class.
const IngressClass = "kcp"

// legacyIngressClassKey is how classes were named before spec.ingressClassName.
const legacyIngressClassKey = "kubernetes.io/ingress.class"

// ServesIngress reports whether gateways serve an Ingress with this
// spec.ingressClassName (nil when absent) and these annotations.
func ServesIngress(className *string, annotations map[string]string) bool {
	if className != nil {
		return *className == IngressClass
	}
	class, ok := annotations[legacyIngressClassKey]
	return !ok || class == IngressClass
}
