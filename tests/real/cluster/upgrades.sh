# Every example of the chart, one upgraded to the next. An upgrade that Kubernetes would refuse is refused by the chart before
# anything is changed, and its recipe works.
. tests/real/cluster/common.sh

chart=deploy/helm/orgdata-exporter
release=orgdata-exporter
refused=

upgrade() {
    helm upgrade "$release" "$1" -n upgrades -f "$chart/ci/$2-values.yaml" >/dev/null
}

state() {
    kubectl -n upgrades get configmap,statefulset -o jsonpath='{range .items[*]}{.metadata.uid}{.metadata.generation}{.data} {end}'
}

# to NAME: upgrades to an example; if it is refused, does what the message says, and tries again.
to() {
    local said before command
    before=$(state)
    if ! said=$(upgrade $chart "$1" 2>&1); then
        [[ $said == *"no upgrade can change these"*"Nothing was changed"* ]] || fail "$1: $said"
        [[ $(state) == "$before" ]] || fail "$1: something was changed"
        # No kubelet and no storage class here can make a volume larger.
        grep '^  kubectl' <<<"$said" | grep -v ' patch pvc ' >"$work/recipe"
        [[ $(wc -l <"$work/recipe") == 2 ]] || fail "$1: no recipe: $said"
        while read -r command; do
            bash -c "$command" >/dev/null || fail "$1: $command"
        done <"$work/recipe"
        upgrade $chart "$1" || fail "$1: the recipe did not help"
        refused+=" $1"
    fi
}

helm install "$release" $chart -n upgrades -f $chart/ci/base-values.yaml >/dev/null
kubectl -n upgrades rollout status "statefulset/$release" --timeout=60s >/dev/null
helm test "$release" -n upgrades >"$work/test"
grep -q '^Phase: *Succeeded' "$work/test" || fail "helm test: $(cat "$work/test")"
for values in "$chart"/ci/*-values.yaml; do
    example=$(basename "$values" -values.yaml)
    to "$example"
    [[ $refused != *" $example" ]] || to base
done
[[ $refused == " existing-claim base no-persistence base persistence base" ]] || fail "refused:$refused"

# Another version of the chart, which is the same in everything that cannot be changed.
cp -rL $chart "$work/newer"
sed -i -E 's/^((app)?[vV]ersion:) .*/\1 7.8.9/' "$work/newer/Chart.yaml"
upgrade "$work/newer" base
kubectl -n upgrades rollout status "statefulset/$release" --timeout=60s >/dev/null
image=$(kubectl -n upgrades get pod "$release-0" -o jsonpath='{.spec.containers[0].image}')
[[ $image == orgdata-exporter:7.8.9 ]] || fail "it runs $image"
