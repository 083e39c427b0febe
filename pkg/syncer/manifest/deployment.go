package manifest

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/13eedeaf/kcp/pkg/syncer/names"
)

const (
	kubeconfigSecretName = "kcp-syncer-kubeconfig"
	kubeconfigKey        = "kubeconfig"
	kubeconfigDir        = "/etc/kcp"
	defaultReplicas      = 2
)

func kubeconfigSecret(id string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: namespacedMeta(id, kubeconfigSecretName),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{kubeconfigKey: kubeconfig},
	}
}

func deployment(id string, o Options) *appsv1.Deployment {
	replicas := o.Replicas
	if replicas == 0 {
		replicas = defaultReplicas
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: namespacedMeta(id, names.ServiceAccount),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels(id)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(id)},
				Spec:       podSpec(id, o),
			},
		},
	}
}

func podSpec(id string, o Options) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName: names.ServiceAccount,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		// Replicas on different nodes, where there are several.
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
			MaxSkew:           1,
			TopologyKey:       corev1.LabelHostname,
			WhenUnsatisfiable: corev1.ScheduleAnyway,
			LabelSelector:     &metav1.LabelSelector{MatchLabels: labels(id)},
		}},
		Containers: []corev1.Container{{
			Name:  "syncer",
			Image: o.Image,
			Args:  append([]string{"--from-kubeconfig=" + kubeconfigDir + "/" + kubeconfigKey}, o.SyncerFlags()...),
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("20m"),
				corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "kubeconfig", MountPath: kubeconfigDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{
			Name:         "kubeconfig",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: kubeconfigSecretName}},
		}},
	}
}
