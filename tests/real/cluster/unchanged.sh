# Both manifests are applied without a warning, and their pods start under "restricted". A second apply changes nothing.
. tests/real/cluster/common.sh

# state NAMESPACE FILE: everything of the objects that an apply can change.
state() {
    kubectl -n "$1" get -f "$2" -o jsonpath='{range .items[*]}{.kind} {.metadata.uid} {.metadata.generation} {.spec}{"\n"}{end}'
}

for case in standalone:orgdata:orgdata-exporter-0 sidecar:example:shop-0; do
    IFS=: read -r manifest namespace pod <<<"$case"
    file=deploy/kubernetes/$manifest.yaml
    kubectl -n "$namespace" apply --warnings-as-errors -f "$file" >/dev/null
    before=$(state "$namespace" "$file")
    kubectl -n "$namespace" apply --warnings-as-errors -f "$file" >/dev/null
    after=$(state "$namespace" "$file")
    [[ $after == "$before" ]] || fail "$manifest: a second apply changes something:"$'\n'"$before"$'\n'"$after"
    kubectl -n "$namespace" wait --for=create "pod/$pod" --timeout=60s >/dev/null
    kubectl -n "$namespace" wait --for=condition=Ready "pod/$pod" --timeout=60s >/dev/null
done
