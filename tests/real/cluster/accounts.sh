# The chart asks for nothing that Helm does not ask for itself: an account that may not read Secrets can install and upgrade, and one that may
# not read StatefulSets can still have an upgrade rendered by the server.
. tests/real/cluster/common.sh

chart=deploy/helm/orgdata-exporter
# Helm keeps its own record of a release in a Secret unless it is told otherwise.
export HELM_DRIVER=configmap
limited() {
    helm "$1" audit $chart --kube-context limited -n "$2" -f $chart/ci/base-values.yaml "${@:3}"
}

denied forbidden kubectl --context limited -n limited get secrets
limited install limited >"$work/said"
grep -q 'create secret generic audit-orgdata-exporter-api-key' "$work/said" || fail "no notes: $(cat "$work/said")"
limited upgrade limited --set state.maxSize=300MiB >/dev/null
denied "persistence.size (1Gi there)" limited upgrade limited --set persistence.size=2Gi

helm install audit $chart -n audit -f $chart/ci/base-values.yaml >/dev/null
denied forbidden kubectl --context limited -n audit get statefulsets
limited upgrade audit --dry-run=server --set upgradeCheck=false >/dev/null
