# The admission policy denies a second exporter that would read, and nothing else.
. tests/real/cluster/common.sh

# PyYAML, which the checks of schemas bring.
PYTHONPATH=$(dirname "$(command -v kubectl)")/../kubernetes-schema/python
export PYTHONPATH
policy=deploy/kubernetes/components/admission-policy/policy.yaml
kubectl apply -f $policy >/dev/null
trap 'kubectl delete -f $policy >/dev/null' EXIT

# try FILE CHANGE: what the API server says to the StatefulSet of that overlay after a change by a line of Python.
try() {
    python3 tests/real/cluster/changed.py "$2" <"$1" >"$work/changed.json"
    kubectl -n policy create --dry-run=server -f "$work/changed.json"
}

alone=$work/alone.yaml beside=$work/beside.yaml
kustomize build deploy/kubernetes/base >"$alone"
kustomize build deploy/kubernetes/overlays/sidecar | sed /^\ \ namespace:/d >"$beside"
# The API server needs a moment to enforce a new policy.
for _ in {1..100}; do
    try "$alone" 'forget_index(); spec["replicas"] = 2' >/dev/null 2>&1 || break
    sleep 0.2
done
denied "each replica would count" try "$alone" 'forget_index(); spec["replicas"] = 2'
denied "each replica would count" try "$beside" 'forget_index(); spec["replicas"] = 2'
denied "spec.ordinals leaves out" try "$beside" 'spec["ordinals"] = {"start": 1}'
denied "pods of this kind have no index" try "$alone" 'make("Deployment")'
denied "pods of this kind have no index" try "$beside" 'make("DaemonSet")'
denied "no StatefulSet made it" try "$alone" 'make("Pod")'
denied "a second replica" try "$alone" 'forget_index(); make("Pod", 1)'
denied "a second replica" try "$beside" 'forget_index(); make("Pod", 1)'
for allowed in 'pass' 'forget_index()' 'spec["replicas"] = 3' 'make("Pod", 0)' 'make("Pod", 1)' 'forget_index(); make("Pod", 0)' \
    'rename(); make("Deployment")' 'rename(); make("Pod")'; do
    for file in "$alone" "$beside"; do
        try "$file" "$allowed" >/dev/null || fail "denied: $allowed"
    done
done

# On a running one: a second pod is not made, whoever scales.
python3 tests/real/cluster/changed.py 'forget_index()' <"$alone" | kubectl -n policy create -f - >/dev/null
kubectl -n policy wait --for=create pod/orgdata-exporter-0 --timeout=60s >/dev/null
kubectl -n policy scale statefulset orgdata-exporter --replicas=2 >/dev/null
for _ in {1..100}; do
    events=$(kubectl -n policy get events -o jsonpath='{.items[?(@.reason=="FailedCreate")].message}')
    [[ $events != *"a second replica"* ]] || break
    sleep 0.2
done
[[ $events == *"a second replica"* ]] || fail "no event: $events"
[[ $(kubectl -n policy get pods -o name) == pod/orgdata-exporter-0 ]] || fail "another pod"
