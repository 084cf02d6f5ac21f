# Profiles of text to speech, under the names of the kit that laptime replaces. Each leaves its file in this folder.
#
#   make profile-chrome                      synthetic weights
#   make profile-chrome MODEL_DIR=path       those of a checkpoint
#   make profile-chrome LAPTIME=laptime      an installed program instead of one built here

MODEL_DIR ?=
PATH_TO_AUDIT ?= crates
FEATURES ?= cuda
LAPTIME ?= cargo run --locked --release -p laptime --features $(FEATURES) --
LABEL ?= short
# One recorded take, one that is not, and one before them.
TAKES ?= 1
WARMUP ?= 1
# More flags of `laptime profile tts`.
FLAGS ?=

MODEL := $(if $(MODEL_DIR),--model-dir $(MODEL_DIR))
TTS := tts --label $(LABEL) $(MODEL) --warmup $(WARMUP) --takes $(TAKES)

.PHONY: profile-chrome profile-flamegraph profile-nsys audit-gpu-syncs

profile-chrome: ## trace.json, for chrome://tracing or https://ui.perfetto.dev
	$(LAPTIME) profile $(TTS) --kit-files $(FLAGS)

profile-flamegraph: ## flamegraph.svg, for a browser
	$(LAPTIME) profile $(TTS) --kit-files $(FLAGS)

profile-nsys: ## nsys_report.nsys-rep, for nsys-ui
	@command -v nsys >/dev/null || { echo 'nsys is missing: install Nsight Systems, or run `make profile-chrome`' >&2; exit 2; }
	@# Built before it is listened to.
	$(LAPTIME) --version
	nsys profile --trace=cuda,nvtx --force-overwrite true --output nsys_report $(LAPTIME) profile $(TTS) $(FLAGS)

audit-gpu-syncs: ## every call in source that makes the host wait for a device
	$(LAPTIME) audit syncs $(PATH_TO_AUDIT)
