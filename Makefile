# Everything goes through make: the same flags everywhere, so that one build cache serves
# the binaries, the tests and the testbed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/bin
KUBERNETES_VERSION := v1.37.2
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.1.0-dev)
LDFLAGS := -X github.com/13eedeaf/kcp/pkg/version.version=$(VERSION) -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)+kcp-$(VERSION)
KUBE_LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)
export PATH := $(BIN):$(PATH)
# VCS stamps would differ from build to build and say nothing that VERSION does not.
export GOFLAGS := -buildvcs=false

.PHONY: help
help: ## Show this help
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: packages
packages: ## Install the Debian packages that the testbed needs (root)
	@hack/install-packages.sh

.PHONY: build
build: ## Build kcp, syncer and kubectl-kcp into bin/
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/kcp ./cmd/syncer ./cmd/kubectl-kcp
	ln -sf kubectl-kcp $(BIN)/kubectl_complete-kcp

.PHONY: kubectl
kubectl: ## Build kubectl into bin/
	@mkdir -p $(BIN)
	go build -ldflags '$(KUBE_LDFLAGS)' -o $(BIN)/ k8s.io/kubernetes/cmd/kubectl

.PHONY: testbed
testbed: kubectl ## Build the testbed: physical clusters, demo application, pinger
	go build -ldflags '$(KUBE_LDFLAGS)' -o $(BIN)/ ./test/physical/cmd/physical
	CGO_ENABLED=0 go build -o $(BIN)/ ./test/physical/cmd/demoapp ./test/physical/cmd/pause ./test/physical/cmd/pinger

$(BIN)/controller-gen: hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	cd hack/lint && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/gotestsum: hack/tools/go.mod hack/tools/go.sum
	cd hack/tools && go build -o $@ gotest.tools/gotestsum

.PHONY: generate
generate: $(BIN)/controller-gen ## Generate deepcopy functions and CRD YAML
	$(BIN)/controller-gen object crd:crdVersions=v1 paths=./pkg/apis/... output:crd:artifacts:config=pkg/apis/crds

.PHONY: verify
verify: generate ## Fail when generated code, formatting or go.mod are not up to date
	go mod tidy -diff
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@git diff --exit-code -- pkg/apis || { echo "generated code is out of date: commit what make generate changed"; exit 1; }

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run the linters
	$(BIN)/golangci-lint run ./...

.PHONY: test
test: packages build testbed test-unit test-integration test-e2e ## Run all tests

.PHONY: test-unit
test-unit: $(BIN)/gotestsum ## Run the tests of single packages
	hack/test.sh ./cmd/... ./pkg/... ./test/physical/... ./test/framework/...

.PHONY: test-integration
test-integration: $(BIN)/gotestsum ## Run the in-process server tests
	hack/test.sh -timeout 20m ./test/integration/...

.PHONY: test-e2e
test-e2e: packages build testbed $(BIN)/gotestsum ## Run the end-to-end tests on real clusters (root)
	KCP_BIN=$(BIN) hack/test.sh -timeout 60m ./test/e2e/...

STORY ?= cordon-drain
.PHONY: demo
demo: packages build testbed ## Run a story (STORY=cordon-drain, which needs root, login or workspaces)
	KCP_BIN=$(BIN) contrib/demo/$(STORY)/run.sh

BENCH_FLAGS ?=
.PHONY: bench
bench: packages build testbed ## Measure the figures of docs/performance.md (root; BENCH_FLAGS=-quick, -figures P1,P3)
	go run ./test/bench/cmd/bench -bin-dir $(BIN) -results test/bench/results/latest.jsonl $(BENCH_FLAGS)
	go run ./test/bench/cmd/bench -results test/bench/results/latest.jsonl -docs docs
