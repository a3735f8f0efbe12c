# The chart is pushed to the registry at $registry, and installed from there; a release of the chart as it was before is upgraded to it.
. tests/real/cluster/common.sh

chart=deploy/helm/orgdata-exporter
charts=oci://$registry/charts
pushed=$charts/orgdata-exporter
namespace=registry

helm package $chart --destination "$work" >/dev/null
package=$(echo "$work"/orgdata-exporter-*.tgz)
helm push "$package" "$charts" --plain-http >"$work/pushed" 2>&1 || fail "push: $(cat "$work/pushed")"
grep -q '^Digest: sha256:' "$work/pushed" || fail "the release workflow signs the digest: $(cat "$work/pushed")"
mkdir "$work/pulled"
helm pull "$pushed" --plain-http --destination "$work/pulled" >/dev/null 2>&1
cmp "$package" "$work/pulled/${package##*/}"

kubectl create namespace $namespace >/dev/null
helm install fresh "$pushed" --plain-http -n $namespace -f $chart/ci/base-values.yaml >/dev/null 2>&1
kubectl -n $namespace rollout status statefulset/fresh-orgdata-exporter --timeout=60s >/dev/null

# The last chart that differs from this one. A shallow clone has none.
before=
for commit in $(git log --format=%H -n 50 -- $chart); do
    git diff --quiet "$commit" -- $chart || { before=$commit && break; }
done
[[ -n $before ]] || fail "no earlier chart: a shallow clone needs \`git fetch --unshallow\`"
mkdir "$work/before"
# The chart has links to the dashboards.
git archive "$before" $chart dashboards | tar --extract --directory "$work/before"
upgraded=orgdata-exporter
helm install $upgraded "$work/before/$chart" -n $namespace -f "$work/before/$chart/ci/base-values.yaml" >/dev/null
kubectl -n $namespace rollout status "statefulset/$upgraded" --timeout=60s >/dev/null
claim() {
    kubectl -n $namespace get pvc state-$upgraded-0 -o jsonpath='{.metadata.uid}'
}
kept=$(claim)
helm upgrade $upgraded "$pushed" --plain-http -n $namespace --reset-then-reuse-values >/dev/null 2>&1 || fail "no upgrade from $before"
kubectl -n $namespace rollout status "statefulset/$upgraded" --timeout=60s >/dev/null
[[ -n $kept && $(claim) == "$kept" ]] || fail "the upgrade changed the claim"
helm test $upgraded -n $namespace >"$work/test"
grep -q '^Phase: *Succeeded' "$work/test" || fail "helm test: $(cat "$work/test")"
