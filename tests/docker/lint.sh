#!/bin/sh
# Every linter and schema for docker/: `make lint-docker` puts them on PATH.
set -eu
cd "$(dirname "$0")/../.."
rendered=build/docker-rendered
rm -rf "$rendered"
mkdir -p "$rendered"

echo "hadolint"
hadolint docker/Dockerfile docker/triton.Dockerfile

echo "shellcheck"
shellcheck docker/install.sh tests/docker/lint.sh

echo "yamllint"
yamllint --strict --config-file tests/docker/yamllint.yaml docker

echo "compose schema"
check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml docker/compose.triton.yaml

echo "Kubernetes schemas"
# ServiceMonitor is the Prometheus operator's kind, of which Kubernetes has no schema; its rule for the adapter is no manifest.
for manifest in docker/kubernetes/base/*.yaml; do
    case $manifest in
        */kustomization.yaml) ;;
        *) kubernetes-validate --quiet --strict "$manifest" ;;
    esac
done
if command -v kubectl > /dev/null; then
    for overlay in docker/kubernetes/overlays/*/; do
        name=$(basename "$overlay")
        kubectl kustomize "$overlay" > "$rendered/$name.yaml"
        kubernetes-validate --quiet --strict "$rendered/$name.yaml"
        echo "  $name: $(grep -c '^kind:' "$rendered/$name.yaml") objects"
    done
else
    echo "  kubectl is not on PATH: the overlays were not rendered"
fi

echo "Prometheus"
if command -v promtool > /dev/null; then
    promtool check config docker/prometheus/headrace.yml docker/prometheus/triton.yml
else
    echo "  promtool is not on PATH (it comes with Prometheus): its configuration was not checked"
fi
