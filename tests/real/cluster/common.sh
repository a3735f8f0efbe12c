# Sourced by the scripts beside it, which run in the root of the repository with the real kubectl, helm and kustomize, KUBECONFIG, and
# an empty directory $work.
set -euo pipefail

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# overlay NAME KUSTOMIZATION: writes an overlay, with @ for deploy/kubernetes, and prints its directory.
overlay() {
    local dir=$work/$1
    mkdir -p "$dir"
    printf '%s\n' "${2//@/$(realpath --relative-to="$dir" deploy/kubernetes)}" >"$dir/kustomization.yaml"
    printf '%s\n' "$dir"
}

# denied WORDS COMMAND...: the command fails and says these words.
denied() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        fail "not denied ($words): $*: $said"
    fi
    [[ $said == *"$words"* ]] || fail "denied, but not with '$words': $said"
}
