# The front door. `make help` lists what there is; tools/ and CMakePresets.json do the work.
JOBS ?= 2
PREFIX ?= $(HOME)/.local
export JOBS

.PHONY: help setup demo build test unit quick asan tsan lint format bench gpu-bundle model install demo-models demo-quality fresh clean

help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  JOBS=N              compilers at once (default 2)"
	@echo "  PREFIX=FOLDER       where make install puts the program (default ~/.local)"
	@echo "  MILLRACE_DEPS       folder of LibTorch and the Python set, shared by all clones (default ~/.cache/millrace)"
	@echo "  MILLRACE_CUDA       AUTO, ON or OFF: build for CUDA (default AUTO: where nvcc is)"

setup:
	@tools/setup.sh core

demo: build ## install, build, draw 48 pictures, find what is on them, print the report and where to look
	@tools/demo.sh

build: setup ## install what is missing and build the program
	@tools/build.sh release millrace millrace_imgcodecs

test: ## install what is missing, build, check style, run every test, also under sanitizers
	@tools/test.sh lint release asan tsan

unit: ## build and run the doctest programs, unoptimised: while you work
	@tools/test.sh unit

quick: ## the same without the sanitizers
	@tools/test.sh lint release

asan: ## the tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	@tools/test.sh asan

tsan: ## the tests of the graph, io and the stages under ThreadSanitizer
	@tools/test.sh tsan

lint: ## clang-format, who may include whom, clang-tidy
	@tools/test.sh lint

format: ## clang-format every source file in place
	@tools/setup.sh core check
	@tools/lint.sh --format

bench: ## the benchmarks, warm-up and spread in every number
	@tools/setup.sh core python
	@tools/build.sh release
	@tools/bench.sh

gpu-bundle: ## program, tests and benchmarks for a machine with a GPU that has PyTorch and little else
	@tools/setup.sh core python
	@tools/gpu_bundle.sh

# The call stands in its own shell: a name with blanks or quotes reaches the script as it is.
model: export WEIGHTS := $(WEIGHTS)
model: export SEGMENTER := $(SEGMENTER)
model: export OUT := $(OUT)
model: export PHOTOGRAPH := $(PHOTOGRAPH)
model: export IMGSZ := $(IMGSZ)
model: export NAMES := $(NAMES)
model: export PRESET := $(PRESET)
model: export TRUST := $(TRUST)
model: ## model packages: WEIGHTS=yolov8n.pt [SEGMENTER=mobile_sam.pt] [OUT=FOLDER]
	@tools/model.sh check
	@tools/setup.sh core python
	@tools/model.sh

install: build ## install the program and its recipes into PREFIX
	@cmake --install build/release --prefix "$(PREFIX)" > build/release/install.log 2>&1 \
	  || { echo "install: no files can be put into $(PREFIX) (build/release/install.log says why): name a folder that you may write to, make install PREFIX=FOLDER" >&2; exit 1; }
	@echo "installed: $(PREFIX)/bin/millrace, its plug-ins in $(PREFIX)/lib/millrace, recipes in $(PREFIX)/share/millrace/configs"
	@deps="$$(tools/setup.sh where)"; case "$$deps" in "$$HOME"/* | /home/* | /root/*) \
	  echo "models load LibTorch from $$deps/core: others who run it need to read that; MILLRACE_DEPS=FOLDER chooses another place" ;; esac
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "$(PREFIX)/bin is not in PATH: type the whole name, or add it" ;; esac

demo-models: ## train the built-in models anew, into build/demo-models
	@tools/setup.sh core python
	@tools/train_demo.sh

demo-quality: ## measure the built-in models on 300 held-out scenes
	@tools/setup.sh core python
	@tools/build.sh release millrace millrace_imgcodecs
	@"$$(tools/setup.sh where)/python/bin/python" models/demo/quality.py

fresh: ## prove the front door in a new Debian 12 (needs root)
	@tools/fresh.sh

clean: ## remove the build folders; the shared wheels stay
	rm -rf build
