# A first rollout with a wrong image is healed by the right one, without a pod deleted by hand, and there are never two pods.
. tests/real/cluster/common.sh

apply() {
    sed "s|image: orgdata-exporter:|image: registry.example.com/$1:|" deploy/kubernetes/standalone.yaml | kubectl -n rollout apply -f - >/dev/null
}

kubectl -n rollout get pods --watch --output-watch-events \
    -o jsonpath='{.type} {.object.metadata.name} {.object.spec.containers[0].image}{"\n"}' >"$work/pods" &
watch=$!
trap 'kill $watch' EXIT
apply bad
kubectl -n rollout wait --for=create pod/orgdata-exporter-0 --timeout=60s >/dev/null
waits='{.status.containerStatuses[0].state.waiting.reason}'
kubectl -n rollout wait --for="jsonpath=$waits=ImagePullBackOff" pod/orgdata-exporter-0 --timeout=60s >/dev/null
apply good
kubectl -n rollout rollout status statefulset/orgdata-exporter --timeout=60s >/dev/null
kubectl -n rollout wait --for=condition=Ready pod/orgdata-exporter-0 --timeout=60s >/dev/null
# A third one replaces a pod that is ready.
apply better
kubectl -n rollout rollout status statefulset/orgdata-exporter --timeout=60s >/dev/null
image=$(kubectl -n rollout get pod orgdata-exporter-0 -o jsonpath='{.spec.containers[0].image}')
[[ $image == registry.example.com/better:0.1.0 ]] || fail "it runs $image"
awk '$1 == "ADDED" { if (++pods > 1) exit 1 } $1 == "DELETED" { pods-- }' "$work/pods" || fail "two pods at once: $(cat "$work/pods")"
[[ $(grep -c ^ADDED "$work/pods") == 3 ]] || fail "not three pods one after the other: $(cat "$work/pods")"
