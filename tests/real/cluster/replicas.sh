# A native sidecar in a StatefulSet of three: each pod is told its index, and a claim template takes the place of the emptyDir.
. tests/real/cluster/common.sh

mkdir -p "$work/replicas"
sed 's/  replicas: 1/  replicas: 3/' deploy/kubernetes/overlays/sidecar/application.yaml >"$work/replicas/application.yaml"
directory=$(overlay replicas "$(cat <<'KUSTOMIZATION'
namespace: replicas
resources: [application.yaml]
components: [@/components/native-sidecar]
patches:
  - target: {kind: StatefulSet}
    patch: |-
      - op: add
        path: /spec/volumeClaimTemplates
        value:
          - metadata: {name: orgdata-exporter-state}
            spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 512Mi}}}
transformers: [@/components/one-statefulset]
KUSTOMIZATION
)")
kubectl apply --warnings-as-errors -k "$directory" >/dev/null
kubectl -n replicas rollout status statefulset/shop --timeout=60s >/dev/null
for index in 0 1 2; do
    pod=$(kubectl -n replicas get pod "shop-$index" -o jsonpath='{.metadata.labels.apps\.kubernetes\.io/pod-index}
{.spec.initContainers[?(@.name=="orgdata-exporter")].env[?(@.name=="ORGDATA_KUBERNETES_POD_INDEX")].valueFrom.fieldRef.fieldPath}
{.spec.volumes[?(@.name=="orgdata-exporter-state")].persistentVolumeClaim.claimName}')
    [[ $pod == "$index
metadata.labels['apps.kubernetes.io/pod-index']
orgdata-exporter-state-shop-$index" ]] || fail "shop-$index: $pod"
done
