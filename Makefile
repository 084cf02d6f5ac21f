# Profiles of text to speech, with the targets of qwen3-tts-rs. Each writes its file into this folder.
#
#   make profile-chrome                      synthetic weights
#   make profile-chrome MODEL_DIR=path       weights of a checkpoint
#   make profile-chrome LAPTIME=laptime      an installed program instead of one built here

MODEL_DIR ?=
PATH_TO_AUDIT ?= crates
FEATURES ?= cuda
LAPTIME ?= cargo run --locked --release -p laptime --features $(FEATURES) --
LABEL ?= short
# One recorded iteration, one unrecorded iteration, and one warm-up iteration before them.
ITERATIONS ?= 1
WARMUP ?= 1
# More flags of `laptime profile tts`.
FLAGS ?=

MODEL := $(if $(MODEL_DIR),--model-dir $(MODEL_DIR))
TTS := tts --label $(LABEL) $(MODEL) --warmup $(WARMUP) --iterations $(ITERATIONS)

.PHONY: profile-chrome profile-flamegraph profile-nsys audit-gpu-syncs

profile-chrome: ## trace.json, for chrome://tracing or https://ui.perfetto.dev
	$(LAPTIME) profile $(TTS) --compat-files $(FLAGS)

profile-flamegraph: ## flamegraph.svg, for a browser
	$(LAPTIME) profile $(TTS) --compat-files $(FLAGS)

profile-nsys: ## nsys_report.nsys-rep, for nsys-ui
	@command -v nsys >/dev/null || { echo 'nsys is missing: install Nsight Systems, or run `make profile-chrome`' >&2; exit 2; }
	@# Builds the program before nsys records it.
	$(LAPTIME) --version
	nsys profile --trace=cuda,nvtx --force-overwrite true --output nsys_report $(LAPTIME) profile $(TTS) $(FLAGS)

audit-gpu-syncs: ## calls in the source that force a GPU sync
	$(LAPTIME) audit syncs $(PATH_TO_AUDIT)
