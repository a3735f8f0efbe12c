# What is applied is accepted without a warning. What is applied again is unchanged, object by object.
. tests/real/cluster/common.sh

# sidecar NAMESPACE KIND: the example of an application with that sidecar.
sidecar() {
    mkdir -p "$work/$1"
    cp deploy/kubernetes/overlays/sidecar/application.yaml "$work/$1"
    overlay "$1" "{namespace: $1, resources: [application.yaml], components: [@/components/$2, @/components/sidecar-claim, @/components/collector]}"
}

for directory in deploy/kubernetes/overlays/standalone deploy/kubernetes/overlays/sidecar "$(sidecar one native-sidecar)" "$(sidecar two plain-sidecar)" \
    "$(overlay three "{namespace: three, resources: [@/base], components: [@/components/servicemonitor]}")"; do
    kubectl apply --warnings-as-errors -k "$directory" >"$work/first"
    kubectl apply -k "$directory" >"$work/second"
    [[ $(wc -l <"$work/first") -gt 4 ]] || fail "$directory: $(cat "$work/first")"
    ! grep -v ' unchanged$' "$work/second" || fail "$directory: a second apply changes this"
done
# Under "restricted" the pods start too.
for pod in orgdata/orgdata-exporter-0 example/shop-0 one/shop-0 two/shop-0 three/orgdata-exporter-0; do
    kubectl -n "${pod%/*}" wait --for=create "pod/${pod#*/}" --timeout=60s >/dev/null
    kubectl -n "${pod%/*}" wait --for=condition=Ready "pod/${pod#*/}" --timeout=60s >/dev/null
done
kubectl -n orgdata rollout status deployment/orgdata-exporter-collector --timeout=60s >/dev/null
