# Task running for developers and newcomers; `make demo` and `make test` need only Python >= 3.11, git and make.
# Of the newest version that is here the quickest: one that was built without profiles takes a seventh more for all tests.
RACE := import ensurepip, sys, timeit, venv; (3, 11) <= sys.version_info < (3, 14) or sys.exit(1); \
	seconds = min(timeit.repeat("sum(f(i) for i in range(2000))", "f = lambda i: i if i % 3 else -i", number=30)); \
	print(seconds, sys.executable)
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	IFS=:; for folder in $$PATH; do "$$folder/$$name" -c '$(RACE)' 2>/dev/null; done \
	| sort -g | head -n 1 | cut -d ' ' -f 2- | grep . && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
EXTRA  := $(shell nvidia-smi >/dev/null 2>&1 && echo cuda || echo cpu)
USERS  := $(VENV)/.installed-$(EXTRA)
STAMP  := $(USERS)-dev

.PHONY: setup zoo-setup open-cases-setup names names-setup demo test test-all test-triton lint bench bench-graphs bench-by-hand bench-training bench-gpu gpu-wheels bench-migrate bench-decoding bench-serving bench-host peers bench-peers zoo soak stall chaos fuzz performance bench-check stages scale soundness soundness-clean mutants lint-docker lock sbom docs reference test-docker test-classify bench-classify test-ray clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(call install,$(EXTRA)$(COMMA)dev)
	@touch $(USERS) $@

# What a user installs, and the digits: half the time of everything that development takes.
$(USERS): pyproject.toml constraints.txt
	$(call install,$(EXTRA),scikit-learn)
	@touch $@

COMMA := ,
define install
	@test -n "$(PYTHON)" || { echo "Headrace needs Python >= 3.11; install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing headrace[$(1)] into $(VENV) ..."
	@grep -v '$(if $(filter cuda,$(EXTRA)),^triton==,^$$)' constraints.txt > $(VENV)/constraints.txt
	@rm -f $(VENV)/.installed-*
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(VENV)/constraints.txt -e '.[$(1)]' $(2)
endef

demo: $(USERS)
	@$(BIN)/python examples/demo.py

# Files that are made and removed again take a tenth of the time on a disk: they lie in memory where that has room.
IN_MEMORY = if [ -z "$$TMPDIR" ] && [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'END { print $$4 }')" -ge 8000 ] 2>/dev/null \
	&& awk '/MemAvailable/ { exit $$2 < 12e6 }' /proc/meminfo; then TMPDIR=$$(mktemp -d /dev/shm/headrace-tests-XXXXXX); \
	export TMPDIR; trap 'rm -rf "$$TMPDIR"' EXIT HUP INT TERM; fi;

# Two processes more than two cores have: many tests of the server wait. They steal work from each other, so that none is left
# with a long file at the end; what is dear and needed by several is made once (`once` in tests/conftest.py).
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$(( n < 4 ? 4 : n > 6 ? 6 : n )))
test: setup
	@$(IN_MEMORY) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

# With what is dear and proved by another test, or dearer yet: whole packages from the index, whole trainings.
test-all: setup
	@$(IN_MEMORY) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Kills among many images, which take minutes.
IMAGES ?= 20000
test-classify: setup
	HEADRACE_CLASSIFY_IMAGES=$(IMAGES) $(BIN)/python -m pytest --timeout 1800 tests/serving/offline/test_kills.py

# Ray clusters on this machine, in an environment of their own: a node is killed during a job, a replica while it serves.
# A process each: Ray knows one cluster's token per process.
test-ray: build/ray/.installed
	HEADRACE_TEST_RAY=1 build/ray/bin/python -m pytest --timeout 600 tests/serving/offline/test_cluster.py
	HEADRACE_TEST_RAY=1 build/ray/bin/python -m pytest --timeout 600 tests/serving/ray

build/ray/.installed: $(STAMP)
	@test -x build/ray/bin/python || $(PYTHON) -m venv build/ray
	@echo "Installing Ray into build/ray ..."
	@build/ray/bin/python -m pip install --quiet --disable-pip-version-check 'ray[data,serve]>=2.40'
	@$(BIN)/python examples/peers/share_packages.py build/ray
	@touch $@

# With a real Triton, from the package index: about two minutes, and 350 MB under build/.
TRITON := build/triton
test-triton: setup
	$(BIN)/headrace triton install --into $(TRITON)
	HEADRACE_TRITON=$(CURDIR)/$(TRITON) $(BIN)/python -m pytest tests/serving/triton

# mypy needs the package under its import name, and the checkout may be called anything: a folder of links stands for it.
PARTS := $(wildcard *.py) py.typed kernels migrate runtime serving

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@rm -rf build/mypy && mkdir -p build/mypy/headrace && ln -s $(PARTS:%=../../../%) build/mypy/headrace/
	MYPYPATH=build/mypy $(BIN)/mypy --explicit-package-bases -p headrace

# What measures the project's own claims, beside `headrace bench`.
TOOL := $(BIN)/python -m tests.benchmarks.serving

# The migrated photos, which most benchmarks serve; made once.
PHOTOS := build/photos/models
$(PHOTOS): | setup
	$(BIN)/python examples/photos/prepare.py
	$(BIN)/headrace migrate examples/photos --out build/photos

bench: setup
	@$(BIN)/python examples/photos/prepare.py
	$(BIN)/headrace migrate examples/photos --out build/photos
	$(BIN)/headrace bench build/photos/models --baseline examples/photos --trust-repository --out build/bench

bench-graphs: zoo-setup
	$(BIN)/python tests/benchmarks/graphs.py

# Our plan beside the strongest forms written by hand, resumable per model: MODELS=resnet50,swin_t, BUSY=2.
bench-by-hand: zoo-setup
	@$(BIN)/python -c 'from importlib.util import find_spec; raise SystemExit(not find_spec("nncf"))' || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'nncf>=3,<4'
	$(BIN)/python tests/benchmarks/by_hand.py $(if $(MODELS),--models $(MODELS)) --busy $(or $(BUSY),0)

bench-training: setup
	$(BIN)/python tests/benchmarks/training.py --out docs/bench-training.json

bench-migrate: setup
	$(BIN)/python tests/benchmarks/migrate.py --out docs/bench-migrate.json

bench-decoding: setup
	@$(BIN)/python examples/photos/prepare.py
	$(BIN)/python tests/benchmarks/decoding.py --out docs/bench-decoding.json

bench-serving: setup
	@$(BIN)/python examples/photos/prepare.py
	$(BIN)/headrace migrate examples/photos --out build/photos
	$(TOOL).overhead build/photos/models --images examples/photos/data/test --out docs/bench-serving.json

# What the processes beside a GPU cost for a request, on any machine: the device is none, and takes its time all the same.
bench-host: setup
	$(BIN)/python -m tests.benchmarks.host

# ResNet-like work on real photos, and 100,000 small JPEGs with the memory's curve; for a quiet machine.
bench-classify: setup $(PHOTOS)
	$(BIN)/python tests/benchmarks/classify.py build/photos/models --images examples/photos/data/test --out docs/bench-classify.json

# An hour at twice what the server sustains, on a quiet machine; SECONDS=120 for a short one, MODELS=... for another model.
SECONDS ?= 3600
MODELS  ?= $(PHOTOS)
soak: setup $(MODELS)
	$(TOOL).soak $(MODELS) --seconds $(SECONDS) --out docs/reliability

# How long a liveness answer waits while the server is sent what would stop it; on a quiet machine.
stall: setup $(MODELS)
	$(TOOL).stall $(MODELS) --out docs/reliability.md

# Ten minutes of killed and stopped processes, replaced and corrupt models, cut connections, no descriptors and a full disk under
# mixed traffic.
chaos: setup
	$(TOOL).chaos --seconds $(or $(CHAOS_SECONDS),600) --out docs/reliability.md

# Cases that no client would send, to a server in one process or with FRONTENDS; docs/fuzzing.md says what must hold.
CASES     ?= 100000
FRONTENDS ?= 0
fuzz: setup
	$(BIN)/python tests/serving/fuzzing --cases $(CASES) --frontends $(FRONTENDS) --schema 2000 --out docs/fuzzing.json

# Everything that one GPU can say, in under eight minutes: roofline, kernels, models, services; writes docs/bench-gpu.json. Needs
# torch with CUDA and nothing of this checkout's environment: `make bench-gpu GPU_PYTHON=python3` on a bare GPU machine, where
# GPU_OPTIONS='--packages DIR' brings what serving needs (docs/measuring.md).
GPU_PYTHON  ?= $(BIN)/python
GPU_OPTIONS ?=
# What serving needs there, where nothing can be installed: GPU_OPTIONS='--packages build/gpu-wheels'.
gpu-wheels: setup
	$(BIN)/python tests/benchmarks/gpu/wheels.py build/gpu-wheels

bench-gpu:
	$(GPU_PYTHON) tests/benchmarks/gpu $(GPU_OPTIONS)

# Other servers, each in an environment of its own, which also sees this project's packages behind its own.
PEERS := litserve bentoml ray mlserver pytriton
peers: setup $(PEERS:%=build/peers/%/.installed)

PYTHON_pytriton = $(shell $(PYTHON) examples/peers/older_python.py)

build/peers/%/.installed: examples/peers/requirements/%.txt
	@test -x build/peers/$*/bin/python || $(or $(PYTHON_$*),$(PYTHON)) -m venv --without-pip build/peers/$*
	@echo "Installing $* into build/peers/$* ..."
	@$(BIN)/python -m pip --python build/peers/$*/bin/python install --quiet --disable-pip-version-check -r $<
	@$(BIN)/python examples/peers/share_packages.py build/peers/$*
	@touch $@

bench-peers: peers $(PHOTOS)
	$(TOOL).peers build/photos/models --baseline examples/photos --no-frameworks --out build/bench-peers/onnxruntime
	$(TOOL).peers build/photos/models --baseline examples/photos --no-frameworks --out build/bench-peers/headrace --session headrace

# Writes docs/performance.json and docs/performance.md; for a quiet machine. What is not installed is left out, said so. Each
# machine has a record of its own: PERFORMANCE_OUT=docs/performance-NAME.
PERFORMANCE_OUT ?= docs/performance
performance: peers $(PHOTOS)
	rm -rf build/performance
	$(TOOL).waterfall $(PHOTOS) --baseline examples/photos --rounds 5 --out build/performance
	$(TOOL).sweep $(PHOTOS) --images examples/photos/data/test --out build/performance
	$(TOOL).peers $(PHOTOS) --baseline examples/photos --out build/performance
	$(TOOL).performance record build/performance --command "make performance$(if $(filter-out docs/performance,$(PERFORMANCE_OUT)), PERFORMANCE_OUT=$(PERFORMANCE_OUT))" --out $(PERFORMANCE_OUT)

# Measures the waterfall again and fails where a ratio fell below the one recorded on such a machine beyond the spreads.
bench-check: setup $(PHOTOS)
	$(TOOL).waterfall $(PHOTOS) --baseline examples/photos --out build/bench-check
	$(TOOL).performance check build/bench-check/waterfall.json --recorded docs/performance*.json

# The stages of a server and the server itself, in turn, for the simulation of many machines; six minutes of a quiet machine.
stages: setup $(MODELS)
	$(BIN)/python -m tests.benchmarks.scale measure $(MODELS) --images examples/photos/data/test --out docs/stages.json

# Faults planted in candidates, passes, cache, plans, artifacts, preprocessing, scripts and the server, and who notices each: docs/soundness.md.
soundness: setup
	$(BIN)/python -m tests.soundness

# What the gates refuse though nothing is wrong, among networks of timm and torchvision; a run that was ended goes on where it was.
RUNS ?= 200
soundness-clean: zoo-setup
	$(BIN)/python -m tests.soundness clean --runs $(RUNS)

# The gates' own code, changed in one place at a time: who notices? Hours, with mutmut in an environment of its own; EVERY=11 is a sample.
mutants: build/mutants/.installed
	build/mutants/bin/python -m tests.soundness.mutants --every $(or $(EVERY),1)

build/mutants/.installed: $(STAMP)
	@test -x build/mutants/bin/python || $(PYTHON) -m venv build/mutants
	@echo "Installing mutmut into build/mutants ..."
	@build/mutants/bin/python -m pip install --quiet --disable-pip-version-check mutmut
	@$(BIN)/python examples/peers/share_packages.py build/mutants
	@touch $@

# docs/scale.md from docs/stages.json, on any machine.
scale: setup
	$(BIN)/python -m tests.benchmarks.scale docs --stages docs/stages.json --out docs/scale

# The linters of docker/, in an environment of their own. What no package index has is used where it is found: kubectl, promtool.
lint-docker: build/docker-lint/.installed
	PATH=$(CURDIR)/build/docker-lint/bin:$$PATH sh tests/docker/lint.sh

build/docker-lint/.installed: tests/docker/lint-requirements.txt
	@test -x build/docker-lint/bin/python || $(PYTHON) -m venv build/docker-lint
	@build/docker-lint/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# What the images hold: every package with its digests (docker/locks), and from those a bill of materials (CycloneDX) for each image.
lock: build/lock/.installed
	UV=$(CURDIR)/build/lock/bin/uv sh docker/lock.sh

sbom: build/lock/.installed
	@mkdir -p build/sbom
	@for image in serve cpu cuda triton; do \
	  build/lock/bin/cyclonedx-py requirements docker/locks/$$image.txt --pyproject pyproject.toml --mc-type application \
	    --output-reproducible --validate --output-file build/sbom/$$image.cdx.json && echo build/sbom/$$image.cdx.json || exit 1; done

# The pages as a site, in build/site; --strict ends at what is wrong with them.
docs: build/docs/.installed
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --quiet --strict
	@cd docs && find . -name '*.md' -exec cp --parents {} ../build/site \; # llms.txt points at them
	@echo build/site/index.html

# What is generated of the code: docs/reference and docs/llms.txt; a test says when they are not of today's.
reference: setup
	$(BIN)/python -m tests.reference

build/docs/.installed:
	@test -x build/docs/bin/python || $(PYTHON) -m venv build/docs
	@build/docs/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10'
	@touch $@

build/lock/.installed:
	@test -x build/lock/bin/python || $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5' 'cyclonedx-bom>=5'
	@touch $@

# Carries out the Dockerfile and runs the image without a Docker engine; needs root, for namespaces and mounts. TORCH_INDEX= takes
# torch from where pip finds everything else. KEEP=--keep runs what was built before.
test-docker: setup
	$(BIN)/python tests/docker/without_engine.py $(KEEP)

zoo: zoo-setup
	$(BIN)/python tests/zoo/run.py

# What the ten public repositories import, in an environment of its own: it is changed so that torchvision imports.
open-cases-setup: setup
	@test -x build/open-cases-venv/bin/python || $(PYTHON) -m venv build/open-cases-venv
	@$(MAKE) --no-print-directory zoo-setup VENV=build/open-cases-venv
	@build/open-cases-venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  yacs termcolor munch six tqdm scipy scikit-learn matplotlib pandas requests flask tensorboard tensorboardX lightning-utilities packaging fsspec \
	  hydra-core omegaconf einops imutils stringzilla simsimd regex
	@build/open-cases-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps pytorch-lightning torchmetrics \
	  albumentations==2.0.8 albucore==0.0.24 transformers tokenizers
	@build/open-cases-venv/bin/python tests/open_cases/install_support.py

# Models by their names against timm's, torchvision's and transformers' own pipelines, in an environment of its own likewise.
names: names-setup
	build/names-venv/bin/python -m pytest -n 2 --timeout 1800 tests/migrate/named

names-setup: setup
	@test -x build/names-venv/bin/python || $(PYTHON) -m venv build/names-venv
	@$(MAKE) --no-print-directory zoo-setup VENV=build/names-venv
	@build/names-venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt tokenizers regex requests tqdm packaging filelock
	@build/names-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'transformers>=5'
	@build/names-venv/bin/python tests/open_cases/install_support.py

# torchvision's builds from the index want a CUDA build of torch; its models need nothing of that.
zoo-setup: setup
	@$(BIN)/python -c 'from importlib.util import find_spec; raise SystemExit(not all(map(find_spec, ("timm", "torchvision"))))' || { \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt huggingface_hub safetensors pyyaml && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps torchvision==0.28.0 'timm>=1.0'; }

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
