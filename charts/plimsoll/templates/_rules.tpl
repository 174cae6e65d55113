{{- /*
The operator's rights, and the only place where they are written: the lab and e2e run with what this renders
(deploy/kustomize/base/rbac.yaml), and after `make test` the verbs really used are compared with it (e2e/verbs.py).
After a change: `make kustomize`. No rule may name Secrets.
*/}}

{{- /* In every namespace it serves. */}}
{{- define "plimsoll.rules.services" -}}
# The services, and what it says about them. It never writes a spec.
- apiGroups: [plimsoll.dev]
  resources: [vllmservices]
  verbs: [get, list, watch]
- apiGroups: [plimsoll.dev]
  resources: [vllmservices/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion ask for this where OwnerReferencesPermissionEnforcement is on (OpenShift).
- apiGroups: [plimsoll.dev]
  resources: [vllmservices/finalizers]
  verbs: [update]
# What a service owns. It goes with its owner; the operator itself deletes only what is not wanted any more, but where
# OwnerReferencesPermissionEnforcement is on, only who may delete an object may put back its owner reference.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# A quality gate (docs/tuning.md): the Job that compares answers, and afterwards the word to the pods that waited for it.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# How its pods fare.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
# Why an engine ended: the end of its log, read once a restart, bounded. Without it only exit and last words are known.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# spec.model.configRef names a ConfigMap of the service's own namespace.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# Access modes of the claims that pods mount: whether replicas on several nodes can share one.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
# Autoscalers that target a service's Deployment: its replicas are left to them (docs/scaling.md).
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
# What `kubectl describe` shows; and why a pod's container is not created, which stands nowhere else.
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]
{{- range .Values.settings.optionalKinds }}
{{ include (printf "plimsoll.rules.%s" .) $ }}
{{- end }}
{{- end -}}

{{- /* Kinds that a cluster may have or not (settings.optionalKinds): a rule for what is not served does no harm. */}}
{{- define "plimsoll.rules.LeaderWorkerSet" -}}
# Optional: replicas over several nodes.
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}
{{- define "plimsoll.rules.PodMonitor" -}}
# Optional: how the Prometheus operator finds the engines.
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}
{{- define "plimsoll.rules.InferencePool" -}}
# Optional: the engines as a Gateway API backend, for services that name an endpoint picker.
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}

{{- /* Only when it serves the whole cluster. */}}
{{- define "plimsoll.rules.cluster" -}}
# Whether another install that serves a service is still there: the Lease that status.servedBy names.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get]
# Free GPUs, before a roll-out: nodes of the product, and (with the right on pods above) what runs on them. Without it
# none counts as free: several replicas are replaced one at a time, a single one only with rollout.noSpareGPU: Recreate.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end -}}

{{- /* In the operator's own namespace. */}}
{{- define "plimsoll.rules.own" -}}
# Its catalogue ConfigMaps (label plimsoll.dev/model-catalogue).
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list]
# The Lease that says which replica acts (docs/high-availability.md).
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}
